"""What has gone into the step so far: losses, their named parts, batches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from stayfinite.measure.batch import batch_in_words


class Intake:
    """Gathers one step's losses on the device, over as many ``backward`` calls as it has."""

    def __init__(self) -> None:
        self.batches = 0
        """Batches of the whole run."""
        self.loss: Tensor | None = None
        """Sum of the step's losses; None before the first."""
        self.parts: dict[str, Tensor] = {}
        self.batch_shape = ""

    def see(self, batch: object) -> None:
        """Remember what the coming loss is computed from."""
        self.batch_shape = batch_in_words(batch)

    def add(self, loss: Tensor, parts: Mapping[str, Tensor | float]) -> None:
        """Take in the loss of one batch."""
        self.batches += 1
        self.loss = _sum(self.loss, loss)
        for name, part in parts.items():
            value = part if isinstance(part, Tensor) else torch.tensor(float(part), device=loss.device)
            self.parts[str(name)] = _sum(self.parts.get(str(name)), value)

    def clear(self) -> None:
        """Begin the next step."""
        self.loss, self.parts, self.batch_shape = None, {}, ""


def _sum(total: Tensor | None, value: Tensor) -> Tensor:
    # A wider copy: sums do not overflow, and a replayed CUDA graph may overwrite the original.
    wide = torch.float32 if value.device.type == "mps" else torch.float64
    copied = (value if value.dim() == 0 else value.reshape(())).detach().to(wide, copy=True)
    return copied if total is None else total + copied
