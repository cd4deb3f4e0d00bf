"""Downsampled signal of fixed size, for drawing runs of any length.

Each bin has the mean of its finite values and the count of others. When all bins are full, neighbors are merged and
each bin takes twice as many values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

PLACES = 512


@dataclass(slots=True)
class _Place:
    total: float = 0.0
    finite: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class Stroke:
    """One drawn bin."""

    mean: float | None
    """Mean of the finite values; None if there are none."""
    bad: bool
    """Whether the bin has a non-finite value."""


class Sketch:
    """Fixed number of bins over a growing signal."""

    def __init__(self, places: int = PLACES) -> None:
        self._most = places
        self._places: list[_Place] = []
        self._each = 1
        self._in_last = 0

    def add(self, value: float) -> None:
        """Append a value; NaN and infinity are counted, not averaged."""
        if not self._places or self._in_last >= self._each:
            if len(self._places) >= self._most:
                self._join()
            if not self._places or self._in_last >= self._each:
                self._places.append(_Place())
                self._in_last = 0
        place = self._places[-1]
        self._in_last += 1
        if math.isfinite(value):
            place.total += value
            place.finite += 1
        else:
            place.bad += 1

    def strokes(self, width: int) -> list[Stroke]:
        """The whole curve in at most ``width`` strokes."""
        count = len(self._places)
        width = max(1, min(width, count))
        if not count:
            return []
        drawn = []
        for number in range(width):
            begin, end = number * count // width, (number + 1) * count // width
            drawn.append(_stroke(self._places[begin:end]))
        return drawn

    def _join(self) -> None:
        joined = []
        for index in range(0, len(self._places), 2):
            one, other = self._places[index], (self._places[index + 1 :] or [_Place()])[0]
            joined.append(_Place(one.total + other.total, one.finite + other.finite, one.bad + other.bad))
        if len(self._places) % 2:  # the last bin is half full
            self._in_last = self._each
        else:
            self._in_last = 2 * self._each
        self._places = joined
        self._each *= 2


def _stroke(places: list[_Place]) -> Stroke:
    finite = sum(place.finite for place in places)
    total = sum(place.total for place in places)
    # A sum of finite values may overflow.
    mean = total / finite if finite and math.isfinite(total) else None
    return Stroke(mean, any(place.bad for place in places))


def strokes_of(values: Sequence[float], width: int) -> list[Stroke]:
    """A complete sequence in at most ``width`` strokes."""
    count = len(values)
    width = min(max(1, width), count)
    drawn = []
    for number in range(width):
        part = values[number * count // width : (number + 1) * count // width]
        finite = [value for value in part if math.isfinite(value)]
        drawn.append(_stroke([_Place(sum(finite), len(finite), len(part) - len(finite))]))
    return drawn
