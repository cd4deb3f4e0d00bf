"""Detailed per-parameter sample, taken every n steps.

The update ratio is estimated on at most ``SUBSET`` evenly spaced elements, so no second copy of the weights is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stayfinite.measure.fused import Fused
from stayfinite.measure.gradients import HALF, GradientNorms, own_part
from stayfinite.measure.movement import Movement, spacing
from stayfinite.measure.roster import Roster

FIELDS = ("norm", "abs_max", "zero_share", "nonfinite", "update_ratio")
"""Columns of a sample. ``update_ratio`` is the update relative to the weight: 0 for a refused step, non-finite for an
all-zero weight. For sparse gradients only stored values count.
"""

PLAIN = {nn.Parameter}


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample, still on the device."""

    step: int
    indices: tuple[int, ...]
    table: Tensor
    """Shape [len(indices), len(FIELDS)], float64."""


class Sampler:
    """Reads gradients and weights on construction, and the weights again in ``finish``.

    Arguments:
        fused: kernels to use if possible; None for torch alone.
    """

    def __init__(self, roster: Roster, step: int, measured: GradientNorms, fused: Fused | None = None) -> None:
        self._roster = roster
        self._step = step
        self._indices = measured.indices
        self._width = torch.float32 if roster.device.type == "mps" else torch.float64
        self._table: Tensor | None = None
        self._columns: list[Tensor] = []
        if measured.facts is None:
            self._columns = [measured.norms.to(self._width), *self._look(measured)]
        else:
            # Complete except for the update ratio.
            self._table = measured.facts.table
            if measured.norms is not measured.facts.norms:
                self._table[:, 0].copy_(measured.norms)
        whole = len(roster.places) == 1 and len(self._indices) == len(roster.parameters)
        weights: Sequence[Tensor] = roster.parameters
        if not whole:
            weights = list(map(roster.parameters.__getitem__, self._indices))
        if set(map(type, weights)) != PLAIN:
            weights = [own_part(weight) for weight in weights]
        self._movement: Movement | None = None if fused is None or not weights else fused.watch(weights)
        self._before = [] if self._movement is not None else [_subset(weight).clone() for weight in weights]

    def finish(self) -> Sample:
        """Measure the update; call it after the optimizer's step."""
        if self._table is not None and self._movement is not None:
            return Sample(self._step, self._indices, self._movement.ratios(self._table))
        ratio = self._compared() if self._movement is None else self._movement.ratios()
        if self._table is None:
            return Sample(self._step, self._indices, torch.stack([*self._columns, ratio], dim=1))
        self._table[:, -1].copy_(ratio)
        return Sample(self._step, self._indices, self._table)

    def _look(self, measured: GradientNorms) -> list[Tensor]:
        gradients = [grad for group in measured.groups for grad in group]
        sizes = torch.tensor([max(grad.numel(), 1) for grad in gradients], dtype=self._width)
        if self._roster.device.type == "cuda":
            sizes = sizes.pin_memory().to(self._roster.device, non_blocking=True)
        filled = self._column([torch.count_nonzero(grad) for grad in gradients])
        return [
            self._column([_abs_max(grad) for grad in gradients]),
            1 - filled / sizes,
            # x - x is 0 for finite x and NaN otherwise, which counts as nonzero.
            self._column([torch.count_nonzero(grad - grad) for grad in gradients]),
        ]

    def _compared(self) -> Tensor:
        now = (_subset(own_part(self._roster.parameters[index])) for index in self._indices)
        moved = [_norm(after - before) for after, before in zip(now, self._before, strict=True)]
        return self._column(moved) / self._column([_norm(before) for before in self._before])

    def _column(self, values: list[Tensor]) -> Tensor:
        device = self._roster.device
        if not values:
            return torch.zeros(0, device=device, dtype=self._width)
        if any(value.device != device for value in values):
            values = [value.to(device, non_blocking=True) for value in values]
        if any(value.dtype != values[0].dtype for value in values):
            values = [value.to(self._width) for value in values]
        return torch.stack(values).to(self._width)


def _abs_max(grad: Tensor) -> Tensor:
    # The maximum of an empty tensor is undefined, its sum is not.
    return torch.linalg.vector_norm(grad, float("inf")) if grad.numel() else grad.sum()


def _norm(values: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(values, dtype=torch.float32 if values.dtype in HALF else None)
    return norm


def _subset(weight: Tensor) -> Tensor:
    flat = weight.detach().reshape(-1)
    return flat[:: spacing(flat.numel())]
