"""Calibrate confidence: of findings at 0.9, nine in ten are right on unseen runs.

The sum of clues is overconfident in the middle: on unseen cases (benchmarks/failures; the reliability table in
docs/diagnose.md) sums of 0.5 to 0.9 were right in half of the cases, those above 0.9 in nine of ten. A piecewise linear
map of log-odds corrects this and keeps the order.
"""

from __future__ import annotations

import math
from itertools import pairwise

_LINE = ((-4.0, -4.4), (-2.0, -2.4), (-0.85, -1.4), (0.0, -0.4), (1.1, 0.4), (1.73, 1.1), (2.4, 2.2), (4.6, 4.6))
"""``(log-odds of the clues, calibrated log-odds)``."""


def calibrated(confidence: float) -> float:
    """The share of findings of this confidence that are right."""
    odds = math.log(confidence / (1.0 - confidence))
    if odds <= _LINE[0][0]:
        return confidence
    for (left, low), (right, high) in pairwise(_LINE):
        if odds <= right:
            mapped = low + (high - low) * (odds - left) / (right - left)
            return round(1.0 / (1.0 + math.exp(-mapped)), 2)
    return confidence
