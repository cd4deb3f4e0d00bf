"""Confidence that means what it says: of findings at 0.9, nine in ten are right on runs that no rule was written for.

The sum of clues is too sure in its middle: at first look at unseen cases (benchmarks/failures; the reliability
table in docs/diagnose.md) sums of 0.5 to 0.9 were right in half of the cases, those above 0.9 in nine of ten. A
piecewise line over log-odds maps one to the other; it never changes an order.
"""

from __future__ import annotations

import math
from itertools import pairwise

_LINE = ((-4.0, -4.4), (-2.0, -2.4), (-0.85, -1.4), (0.0, -0.4), (1.1, 0.4), (1.73, 1.1), (2.4, 2.2), (4.6, 4.6))
"""``(log-odds of the clues, log-odds of being right)``."""


def calibrated(confidence: float) -> float:
    """How often a finding of this confidence is right."""
    odds = math.log(confidence / (1.0 - confidence))
    if odds <= _LINE[0][0]:
        return confidence
    for (left, low), (right, high) in pairwise(_LINE):
        if odds <= right:
            mapped = low + (high - low) * (odds - left) / (right - left)
            return round(1.0 / (1.0 + math.exp(-mapped)), 2)
    return confidence
