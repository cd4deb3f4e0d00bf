"""What has gone into the step so far: losses, their named parts, signals of the caller's, batches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from stayfinite.measure.batch import batch_in_words


class LossCollector:
    """Gathers one step's losses on the device, over as many ``backward`` calls as it has."""

    def __init__(self) -> None:
        self.batches = 0
        """Batches of the whole run."""
        self.loss: Tensor | None = None
        """Sum of the step's losses; None before the first."""
        self.parts: dict[str, Tensor] = {}
        self._signals: dict[str, tuple[Tensor, int]] = {}
        """What the caller has measured, and how often in this step."""
        self.batch_shape = ""

    def see(self, batch: object) -> None:
        """Remember what the coming loss is computed from."""
        self.batch_shape = batch_in_words(batch)

    def add(self, loss: Tensor, parts: Mapping[str, Tensor | float]) -> None:
        """Take in the loss of one batch."""
        self.batches += 1
        self.loss = _sum(self.loss, loss)
        for name, part in parts.items():
            self.parts[str(name)] = _sum(self.parts.get(str(name)), _tensor(part, loss.device))

    def hear(self, signals: Mapping[str, Tensor | float], device: torch.device) -> None:
        """Take in what the caller has measured of one batch."""
        for name, signal in signals.items():
            value = _sum(None, _tensor(signal, device))
            before, times = self._signals.get(str(name), (None, 0))
            if before is not None:
                value = torch.maximum(before, value) if is_extreme(name) else before + value
            self._signals[str(name)] = value, times + 1

    @property
    def signals(self) -> dict[str, Tensor]:
        """What the caller has measured: of several batches the mean, and of a ``_max`` the highest."""
        return {
            name: value if times == 1 or is_extreme(name) else value / times
            for name, (value, times) in self._signals.items()
        }

    def clear(self) -> None:
        """Begin the next step."""
        self.loss, self.parts, self.batch_shape = None, {}, ""
        self._signals = {}


def is_extreme(name: str) -> bool:
    """Whether a signal is the highest of many numbers, so that of several the highest counts."""
    return name.endswith("_max")


def _tensor(value: Tensor | float, device: torch.device) -> Tensor:
    # Made there: what is copied to a device from ordinary memory is waited for.
    return value if isinstance(value, Tensor) else torch.full((), float(value), device=device)


def _sum(total: Tensor | None, value: Tensor) -> Tensor:
    # A wider copy: sums do not overflow, and a replayed CUDA graph may overwrite the original.
    wide = torch.float32 if value.device.type == "mps" else torch.float64
    copied = (value if value.dim() == 0 else value.reshape(())).detach().to(wide, copy=True)
    return copied if total is None else total + copied
