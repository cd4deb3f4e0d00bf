"""A closer look at every parameter, taken every so many steps.

The update ratio is estimated on at most ``SUBSET`` evenly spaced elements of a parameter, so that no second copy of the
weights is ever needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stayfinite.measure.gradients import GradientNorms
from stayfinite.measure.roster import Roster

SUBSET = 65_536
"""Most elements of a parameter that the update ratio is taken from."""

FIELDS = ("norm", "abs_max", "zero_share", "nonfinite", "update_ratio")
"""Columns of a sample's table. ``update_ratio`` is the step relative to the weight, 0 for a refused one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One closer look, still on the device."""

    step: int
    indices: tuple[int, ...]
    table: Tensor
    """Shape [len(indices), len(FIELDS)], float64."""


class Sampler:
    """Looks at raw gradients and weights when it is made, and at the weights again in ``finish``."""

    def __init__(self, roster: Roster, step: int, measured: GradientNorms) -> None:
        self._roster = roster
        self._step = step
        self._indices = measured.indices
        self._width = torch.float32 if roster.device.type == "mps" else torch.float64
        gradients = [grad for group in measured.groups for grad in group]
        self._columns = [
            measured.norms,
            self._column([_abs_max(grad) for grad in gradients]),
            self._column([1 - torch.count_nonzero(grad) / max(grad.numel(), 1) for grad in gradients]),
            self._column([(~torch.isfinite(grad)).sum() for grad in gradients]),
        ]
        self._before = [_subset(roster.parameters[index]) for index in self._indices]

    def finish(self) -> Sample:
        """Call after the optimizer's step: measures how far it went."""
        moved = []
        for index, before in zip(self._indices, self._before, strict=True):
            after = _subset(self._roster.parameters[index])
            size = torch.linalg.vector_norm(before.float())
            moved.append(torch.linalg.vector_norm((after - before).float()) / (size + torch.finfo(torch.float32).tiny))
        columns = [column.to(self._width) for column in (*self._columns, self._column(moved))]
        return Sample(self._step, self._indices, torch.stack(columns, dim=1))

    def _column(self, values: list[Tensor]) -> Tensor:
        device = self._roster.device
        if not values:
            return torch.zeros(0, device=device, dtype=self._width)
        return torch.stack([value.to(device, self._width, non_blocking=True) for value in values])


def _abs_max(grad: Tensor) -> Tensor:
    # The maximum of nothing is not defined, its sum is.
    return torch.linalg.vector_norm(grad, float("inf"), dtype=torch.float32) if grad.numel() else grad.sum()


def _subset(parameter: Tensor) -> Tensor:
    flat = parameter.detach().reshape(-1)
    stride = max(1, -(-flat.numel() // SUBSET))
    return flat[::stride].clone()
