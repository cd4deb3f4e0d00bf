"""What a script is read for: the GPU and the command that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stayfinite.core.settings import Setting
from stayfinite.rules.cards import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """By default, some CUDA GPU and no arguments."""

    card: Card | None = None
    arguments: Mapping[str, Setting] = field(default_factory=dict)
    """Flags and environment variables of the command, by normalized name."""

    @property
    def cuda(self) -> bool:
        """The value of `torch.cuda.is_available()`."""
        return self.card is None or not self.card.is_none

    @property
    def bf16(self) -> bool | None:
        """The value of `torch.cuda.is_bf16_supported()`; None if the GPU is not known."""
        return None if self.card is None else self.card.bf16


ANY_CARD = Surroundings()
