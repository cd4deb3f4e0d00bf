"""What a script is read for: the card that it would run on, and the command that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stayfinite.core.settings import Setting
from stayfinite.rules.cards import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where nothing is said, a script runs on some card with CUDA, started without arguments."""

    card: Card | None = None
    arguments: Mapping[str, Setting] = field(default_factory=dict)
    """Flags and environment variables of the command, by their plain names."""

    @property
    def cuda(self) -> bool:
        """Whether `torch.cuda.is_available()`."""
        return self.card is None or not self.card.is_none

    @property
    def bf16(self) -> bool | None:
        """Whether `torch.cuda.is_bf16_supported()`; None for a card that nobody named."""
        return None if self.card is None else self.card.bf16


ANY_CARD = Surroundings()
