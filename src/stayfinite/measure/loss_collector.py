"""Collect what goes into a step: losses, named terms, the caller's signals, batches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from stayfinite.measure.batch import batch_in_words


class LossCollector:
    """Sums one step's losses on the device, over all its ``backward`` calls."""

    def __init__(self) -> None:
        self.batches = 0
        """Batches in the whole run."""
        self.waiting = 0
        """Batches of the step so far."""
        self.loss: Tensor | None = None
        """Sum of the step's losses; None before the first."""
        self.parts: dict[str, Tensor] = {}
        self._signals: dict[str, tuple[Tensor, int]] = {}
        """Signals of the caller, and how often each was measured in this step."""
        self.batch_shape = ""

    def see(self, batch: object) -> None:
        """Remember the batch that the next loss is computed from."""
        self.batch_shape = batch_in_words(batch)

    def add(self, loss: Tensor, parts: Mapping[str, Tensor | float]) -> None:
        """Add the loss of one batch."""
        self.batches += 1
        self.waiting += 1
        self.loss = _sum(self.loss, loss)
        for name, part in parts.items():
            self.parts[str(name)] = _sum(self.parts.get(str(name)), _tensor(part, loss.device))

    def hear(self, signals: Mapping[str, Tensor | float], device: torch.device) -> None:
        """Add the caller's signals for one batch."""
        for name, signal in signals.items():
            value = _sum(None, _tensor(signal, device))
            before, times = self._signals.get(str(name), (None, 0))
            if before is not None:
                value = torch.maximum(before, value) if is_extreme(name) else before + value
            self._signals[str(name)] = value, times + 1

    @property
    def signals(self) -> dict[str, Tensor]:
        """The caller's signals: the mean over batches, or the highest for ``_max``."""
        return {
            name: value if times == 1 or is_extreme(name) else value / times
            for name, (value, times) in self._signals.items()
        }

    def clear(self) -> None:
        """Start the next step."""
        self.loss, self.parts, self.batch_shape = None, {}, ""
        self._signals = {}
        self.waiting = 0


def is_extreme(name: str) -> bool:
    """Whether a signal is a maximum, so the highest of several counts."""
    return name.endswith("_max")


def _tensor(value: Tensor | float, device: torch.device) -> Tensor:
    # Created on the device: a copy from pageable memory would sync.
    return value if isinstance(value, Tensor) else torch.full((), float(value), device=device)


def _sum(total: Tensor | None, value: Tensor) -> Tensor:
    # A wider copy: sums do not overflow, and a replayed CUDA graph may overwrite the original.
    wide = torch.float32 if value.device.type == "mps" else torch.float64
    copied = (value if value.dim() == 0 else value.reshape(())).detach().to(wide, copy=True)
    return copied if total is None else total + copied
