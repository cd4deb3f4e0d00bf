"""Precision of the forward pass, and its escalation."""

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from stayfinite.core.policy import Precision
from stayfinite.errors import StateError

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
SAFER: dict[Precision, tuple[Precision, ...]] = {"fp16": ("bf16", "fp32"), "bf16": ("fp32",), "fp32": ()}


class PrecisionControl:
    """The autocast in force; ``None`` leaves it to the loop."""

    def __init__(self, precision: Precision | None, device: torch.device) -> None:
        self.current = precision
        self._device = device

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Context for a forward pass in the current precision."""
        if self.current is None or self.current == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=DTYPES[self.current])

    @property
    def next(self) -> Precision | None:
        """Next safer precision that this device supports."""
        if self.current is None:
            return None
        return next((each for each in SAFER[self.current] if each != "bf16" or _has_bf16(self._device)), None)

    def escalate(self) -> Precision:
        following = self.next
        assert following is not None, "the ladder offers escalation only where there is a safer precision"
        self.current = following
        return following

    def in_words(self) -> str:
        """For ``guard.describe()``."""
        return "precision: set by your loop" if self.current is None else f"precision {self.current}"

    def state_dict(self) -> dict[str, Any]:
        return {"current": self.current}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue in the saved precision, or the current one if it is safer."""
        saved = state.get("current")
        if saved is None:
            return
        if saved not in DTYPES:
            raise StateError(f"unknown precision {saved!r}", fix=f"expected one of {', '.join(DTYPES)}")
        if self.current is None or saved in SAFER[self.current]:
            self.current = saved


def _has_bf16(device: torch.device) -> bool:
    return torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else True
