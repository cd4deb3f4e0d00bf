"""The largest batch that fits."""

from __future__ import annotations

from dataclasses import replace

from stayfinite.inspection.memory.estimating import MIB, estimate
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape

CONTEXT = 750 * MIB
"""What the driver and CUDA's own libraries take of a card, outside of torch's count."""

SLACK = 0.1
"""What torch's allocator holds and cannot use: blocks between others, of another size than is asked for."""

MOST = 1 << 20
"""No batch is larger."""


def needed(peak: int) -> int:
    """What a card must have for a step with this peak."""
    return int(peak * (1 + SLACK)) + CONTEXT


def largest_batch(shape: Shape, plan: Plan, card: int) -> int:
    """How many rows fit on a card of so many bytes; 0 when not even one does."""

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
