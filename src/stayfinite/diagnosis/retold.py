"""A log of one's own beside a guard's steps.jsonl tells the refused steps once more, before anybody has judged them.

A loop that prints its loss prints the NaN of a step that the guard refuses a moment later. Such a point is left out of
what is judged where steps.jsonl says that this very step was refused and that the run came back from it. A loop may
count from 0 or from 1, and may print every tenth step only: a point stands for all steps since the one before it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable

from stayfinite.core.series import Point, RunSeries
from stayfinite.diagnosis.own_steps import Refusals

AS_PRINTED = 0.01
"""How far a loss that was printed with few digits may lie from the loss itself, relatively."""


def retold_lines(run: RunSeries, refusals: Iterable[Refusals]) -> set[int]:
    """The lines of a log that only tell of steps that a guard refused."""
    losses = {step: loss for each in refusals for step, loss in each.losses.items()}
    not_finite = sorted(step for step, loss in losses.items() if loss is not None and not math.isfinite(loss))
    found: set[int] = set()
    before = -math.inf
    for ordinal, point in enumerate(run.points if losses else ()):
        step = float(ordinal) if point.step is None else point.step
        if point.bad:
            # The guard counts from 1. Here its step `each` may be called `each` or `each - 1`.
            place = bisect_right(not_finite, before)
            told = place < len(not_finite) and not_finite[place] <= step + 1
        else:
            told = any(_same(point, losses.get(each)) for each in _places(step))
        if told:
            found.add(point.line)
        if point.loss is not None and math.isfinite(step):
            before = step
    return found


def without(run: RunSeries, lines: set[int]) -> RunSeries:
    """The same run, less some of its lines."""
    return run.with_points(point for point in run.points if point.line not in lines)


def _places(step: float) -> tuple[int, ...]:
    return (int(step), int(step) + 1) if math.isfinite(step) else ()


def _same(point: Point, loss: float | None) -> bool:
    """Whether a finite loss is the refused one, as far as it was printed."""
    if point.loss is None or loss is None or not math.isfinite(loss):
        return False
    return abs(point.loss - loss) <= AS_PRINTED * max(abs(point.loss), abs(loss))
