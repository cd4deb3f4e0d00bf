"""The largest batch that fits."""

from __future__ import annotations

from dataclasses import replace

from stayfinite.inspection.memory.estimating import MIB, estimate
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape

CONTEXT = 750 * MIB
"""GPU memory of the driver and CUDA libraries, which torch does not count."""

SLACK = 0.1
"""Share lost to fragmentation in torch's allocator."""

MOST = 1 << 20
"""Upper limit of the search."""


def needed(peak: int) -> int:
    """GPU memory needed for a step with this peak."""
    return int(peak * (1 + SLACK)) + CONTEXT


def largest_batch(shape: Shape, plan: Plan, card: int) -> int:
    """Rows that fit into ``card`` bytes; 0 if not even one does."""

    def fits(batch: int) -> bool:
        return needed(estimate(shape, replace(plan, batch=batch)).peak) <= card

    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= MOST and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
