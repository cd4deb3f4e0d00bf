"""Level of a loss: the median of the last few losses relative to an earlier window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stayfinite.core.spikes import MAD_TO_SIGMA, spread

SPAN = 8
"""Losses in the median."""

LEAST_SIGMA = 0.04
"""Minimum spread of a window on its scale, about 5 % of the loss."""

HIGH, LOW = 3.0, 6.0
"""Robust deviations of single losses at which the median of ``SPAN`` has left the window, up and down."""


@dataclass(frozen=True, slots=True)
class Level:
    """Summary of a window of losses, on an asinh scale: linear near 0, logarithmic above."""

    unit: float
    """Linear range of the scale: the size of the losses, or their spread if they are near 0."""

    middle: float
    sigma: float

    @classmethod
    def of(cls, losses: Sequence[float]) -> Level:
        """Level of a window of finite losses."""
        middle, deviation = spread(losses)
        unit = max(abs(middle), MAD_TO_SIGMA * deviation, 1e-30)
        scaled = [math.asinh(loss / unit) for loss in losses]
        middle, deviation = spread(scaled)
        return cls(unit, middle, max(MAD_TO_SIGMA * deviation, LEAST_SIGMA))

    def place(self, losses: Sequence[float]) -> float:
        """Median of these losses on the window's scale."""
        return math.asinh(median(losses) / self.unit)

    def loss_at(self, place: float) -> float:
        """Loss at a place on the scale."""
        return math.sinh(min(place, 700.0)) * self.unit

    @property
    def high(self) -> float:
        """Threshold above which the level has risen."""
        return self.middle + HIGH * self.sigma

    @property
    def low(self) -> float:
        """Threshold below which the level has fallen."""
        return self.middle - LOW * self.sigma
