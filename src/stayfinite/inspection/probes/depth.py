"""Detect a steady growth or decay over layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

FEWEST = 5
"""Fewest layers for a trend."""
ORDERED = 0.85
"""Share of layer pairs that must have the same order."""
MOST = 200
STEADY_DECADES = 4.0


@dataclass(frozen=True, slots=True)
class Course:
    """A size over depth, in order of use."""

    slope: float
    """Change of log10 per layer."""
    decades: float
    """Change of log10 from first to last."""
    first: float
    last: float

    @property
    def steady(self) -> bool:
        """Whether the change is large."""
        return abs(self.decades) >= STEADY_DECADES


def course_over_depth(sizes: Sequence[float]) -> Course | None:
    """Fit the trend of these sizes; None if they are too few or not monotonic."""
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
