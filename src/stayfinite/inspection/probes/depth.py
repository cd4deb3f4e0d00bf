"""How a size changes over depth: told only where it changes steadily, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

FEWEST = 5
"""Layers that make a course."""
ORDERED = 0.85
"""Of all pairs of layers, the share that must be ordered the same way."""
MOST = 200
STEADY_DECADES = 4.0


@dataclass(frozen=True, slots=True)
class Course:
    """A size over depth, from the layer that is used first to the one used last."""

    slope: float
    """Change of log10 a layer."""
    decades: float
    """Change of log10 from the first to the last."""
    first: float
    last: float

    @property
    def steady(self) -> bool:
        """Whether it goes far."""
        return abs(self.decades) >= STEADY_DECADES


def course_over_depth(sizes: Sequence[float]) -> Course | None:
    """The course of these sizes, by layer; None when they are few or do not change in one direction."""
    known = [size for size in sizes if math.isfinite(size) and size > 0]
    if len(known) < FEWEST:
        return None
    known = known[:: max(1, len(known) // MOST)]
    heights = [math.log10(size) for size in known]
    steps = [(heights[b] - heights[a]) / (b - a) for a, b in combinations(range(len(heights)), 2)]
    slope = median(steps)
    agree = sum((step > 0) == (slope > 0) for step in steps) / len(steps)
    if agree < ORDERED:
        return None
    return Course(slope=slope, decades=slope * (len(heights) - 1), first=known[0], last=known[-1])
