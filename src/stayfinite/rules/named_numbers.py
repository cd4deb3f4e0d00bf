"""The numbers of one name in a log, and where in it something is odd about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from stayfinite.core.series import Point, RunSeries
from stayfinite.rules.number_shapes import trainings


class Numbers(NamedTuple):
    """The finite numbers of one name, with their lines."""

    name: str
    values: list[float]
    lines: list[int]

    def since(self, holds: Callable[[float], bool]) -> int:
        """The line from which on something holds for all values to the end."""
        at = len(self.values)
        while at and holds(self.values[at - 1]):
            at -= 1
        return self.lines[min(at, len(self.lines) - 1)]


class Odd(NamedTuple):
    """What is odd, and the line from which on it is."""

    text: str
    line: int


def numbers_in(run: RunSeries) -> Iterator[Numbers]:
    """Every metric."""
    for name, track in run.metrics.items():
        rows = [row for row in zip(track.values, track.lines, strict=True) if math.isfinite(row[0])]
        if rows:
            yield Numbers(name, [value for value, _ in rows], [line for _, line in rows])


def numbers_by_training(run: RunSeries) -> Iterator[Numbers]:
    """Every metric, apart for each training where a log has several."""
    starts = [0, *(part[0].line for part in trainings([*run.points])[1:]), math.inf]
    for each in numbers_in(run):
        for start, end in pairwise(starts) if len(starts) > 2 else [(0, math.inf)]:
            rows = [row for row in zip(each.values, each.lines, strict=True) if start <= row[1] < end]
            if rows:
                yield Numbers(each.name, [value for value, _ in rows], [line for _, line in rows])


def column(points: Sequence[Point], name: str, called: str = "") -> Numbers:
    """The loss, the throughput or another column of the points."""
    rows = [(value, point.line) for point in points if (value := getattr(point, name)) is not None]
    rows = [row for row in rows if math.isfinite(row[0])]
    return Numbers(called or name, [value for value, _ in rows], [line for _, line in rows])


def told(run: RunSeries, odd: Odd) -> str:
    """`recall is 2.1: it is at most 1, from step 1,200`."""
    steps = {point.line: point.step for point in run.points}
    for track in run.metrics.values():
        steps |= {line: step for line, step in zip(track.lines, track.steps, strict=True) if step is not None}
    step, first = steps.get(odd.line), min(steps, default=0)
    begun = "from the start" if odd.line <= first else "" if step is None else f"from step {step:,.0f}"
    return f"{odd.text}, {begun}" if begun else odd.text
