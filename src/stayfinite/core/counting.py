"""Renumber the steps of a log that restarts the count in each epoch.

A resumed run also goes back to an earlier step, but not to a later epoch: it is left unchanged.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from stayfinite.core.series import RunSeries, Track


def counted_on(run: RunSeries) -> RunSeries:
    """Return the run with steps that rise across epochs, or the run itself if they already do."""
    begins, shifts = _shifts(run)
    if not begins:
        return run

    def shift(step: float | None, line: int) -> float | None:
        place = bisect_right(begins, line)
        return step if step is None or not place else step + shifts[place - 1]

    counted = run.with_points(point._replace(step=shift(point.step, point.line)) for point in run.points)
    counted.metrics = {}
    for name, track in run.metrics.items():
        steps = [shift(step, line) for step, line in zip(track.steps, track.lines, strict=True)]
        counted.metrics[name] = Track(steps, track.values, track.lines, track.seen)
    counted.points_seen = run.points_seen
    return counted


def _shifts(run: RunSeries) -> tuple[list[int], list[float]]:
    """Lines where an epoch restarts the count, and the offset to add from each of them on."""
    begins: list[int] = []
    shifts: list[float] = []
    last: tuple[float, float] | None = None
    stride = 1.0
    for point in run.points:
        if point.step is None or point.epoch is None:
            continue
        if not (math.isfinite(point.step) and math.isfinite(point.epoch)):
            continue
        if last is not None and point.step > last[0]:
            stride = point.step - last[0]
        elif last is not None and point.step < last[0] and point.epoch > last[1]:
            begins.append(point.line)
            shifts.append((shifts[-1] if shifts else 0.0) + last[0] - point.step + stride)
        last = (point.step, point.epoch)
    return begins, shifts
