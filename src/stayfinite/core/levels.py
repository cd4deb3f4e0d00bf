"""The level of a loss: where the last few lie, against a window before them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stayfinite.core.spikes import MAD_TO_SIGMA, spread

SPAN = 8
"""Losses whose median is a level."""

LEAST_SIGMA = 0.04
"""Least spread of a level's window on its own scale, about 5 % of the loss."""

HIGH, LOW = 3.0, 6.0
"""Robust deviations of single losses beyond which a median of ``SPAN`` has left its window, upwards and downwards."""


@dataclass(frozen=True, slots=True)
class Level:
    """What a window of losses was like. Losses are compared on a scale of its own, near to logarithmic above it."""

    unit: float
    """What the scale is linear below: the size of the window's losses, or their spread where they lie round 0."""

    middle: float
    sigma: float

    @classmethod
    def of(cls, losses: Sequence[float]) -> Level:
        """The level of a window of finite losses."""
        middle, deviation = spread(losses)
        unit = max(abs(middle), MAD_TO_SIGMA * deviation, 1e-30)
        scaled = [math.asinh(loss / unit) for loss in losses]
        middle, deviation = spread(scaled)
        return cls(unit, middle, max(MAD_TO_SIGMA * deviation, LEAST_SIGMA))

    def place(self, losses: Sequence[float]) -> float:
        """Where the median of these losses lies, on the window's scale."""
        return math.asinh(median(losses) / self.unit)

    def loss_at(self, place: float) -> float:
        """The loss that lies there."""
        return math.sinh(min(place, 700.0)) * self.unit

    @property
    def high(self) -> float:
        """Above it a level has risen."""
        return self.middle + HIGH * self.sigma

    @property
    def low(self) -> float:
        """Below it a level has fallen."""
        return self.middle - LOW * self.sigma
