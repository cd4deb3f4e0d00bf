"""Downsampled curve of bounded size: each bucket keeps its minimum and maximum, so no extreme is ever lost.

Merged buckets keep the lower minimum and the higher maximum. Non-finite values are kept as spans beside the curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

MOST_STRETCHES = 2_000
"""More than a screen has pixel columns."""

MOST_SPANS = 500

Place = tuple[int, float, float]
"""Ordinal, step and value of a point."""


@dataclass(slots=True)
class Span:
    """Adjacent events of one kind."""

    kind: str
    first: float
    """Step of the first event."""
    last: float
    count: int
    text: str = ""
    """Text of the first event."""
    ordinal: int = 0
    """Ordinal of the last event."""


class Spans:
    """Events at steps, in order; events of one kind are merged when there are too many."""

    def __init__(self, most: int = MOST_SPANS) -> None:
        self._most = most
        self._spans: list[Span] = []
        self._reach = 1
        """Largest ordinal gap between two events that are merged."""
        self.total = 0

    def add(self, kind: str, step: float, *, text: str = "", ordinal: int = 0, joined: bool = False) -> None:
        """Add an event.

        Arguments:
            kind: only events of the same kind are merged.
            text: kept only for the first event of a span.
            ordinal: position among all events; consecutive ones are adjacent.
            joined: merge with an adjacent event of its kind even if there is room.
        """
        self.total += 1
        last = self._spans[-1] if self._spans else None
        if last is not None and last.kind == kind and joined and ordinal - last.ordinal <= self._reach:
            last.last, last.count, last.ordinal = step, last.count + 1, ordinal
            return
        self._spans.append(Span(kind, step, step, 1, text, ordinal))
        while len(self._spans) > self._most:
            self._merge()

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def _merge(self) -> None:
        """Roughly halve the spans: merge every second one into the previous one of its kind."""
        self._reach *= 2
        kept: list[Span] = []
        open_: dict[str, Span] = {}
        for span in self._spans:
            into = open_.pop(span.kind, None)
            if into is None:
                kept.append(span)
                open_[span.kind] = span
            else:
                into.last, into.count, into.ordinal = span.last, into.count + span.count, span.ordinal
        self._spans = kept if len(kept) < len(self._spans) else kept[-self._most :]


class Curve:
    """One column of numbers over the steps."""

    def __init__(self, most: int = MOST_STRETCHES) -> None:
        self._most = most
        self._stretches: list[tuple[Place, Place]] = []
        self._width = 1
        """Points in a full bucket."""
        self._filled = 0
        self._first: Place | None = None
        self._last: Place | None = None
        self.newest: float | None = None
        """Newest value, finite or not."""
        self.bad = Spans()
        """Non-finite values by kind."""
        self.seen = 0

    def add(self, step: float, value: float) -> None:
        ordinal = self.seen
        self.seen += 1
        self.newest = value
        if not math.isfinite(value):
            kind = "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
            self.bad.add(kind, step, ordinal=ordinal, joined=True)
            return
        place = (ordinal, step, value)
        if self._first is None:
            self._first = place
        self._last = place
        if self._filled and self._filled < self._width:
            low, high = self._stretches[-1]
            self._stretches[-1] = (place if value < low[2] else low, place if value > high[2] else high)
            self._filled += 1
            return
        if len(self._stretches) >= self._most:
            self._halve()
        self._stretches.append((place, place))
        self._filled = 1

    def rewind(self, step: float) -> None:
        """Drop the finite points from this step on; call it when the run resumes from an earlier step."""
        kept = [[place for place in stretch if place[1] < step] for stretch in self._stretches]
        self._stretches = [(min(each, key=_value), max(each, key=_value)) for each in kept if each]
        self._filled = self._width
        self._last = max((place for stretch in self._stretches for place in stretch), default=None)
        if self._first is not None and self._first[1] >= step:
            self._first = None

    def points(self) -> list[tuple[float, float]]:
        """Return (step, value) in order: the first and last point and the extremes of every bucket."""
        places = {place for stretch in self._stretches for place in stretch}
        places |= {place for place in (self._first, self._last) if place is not None}
        return [(step, value) for _, step, value in sorted(places)]

    @property
    def last(self) -> tuple[float, float] | None:
        """Step and value of the newest finite point."""
        return None if self._last is None else self._last[1:]

    @property
    def low(self) -> float | None:
        return min((low[2] for low, _ in self._stretches), default=None)

    @property
    def high(self) -> float | None:
        return max((high[2] for _, high in self._stretches), default=None)

    def _halve(self) -> None:
        pairs = zip(self._stretches[::2], self._stretches[1::2], strict=False)
        halved = [(min(a[0], b[0], key=_value), max(a[1], b[1], key=_value)) for a, b in pairs]
        if len(self._stretches) % 2:
            halved.append(self._stretches[-1])
        self._stretches = halved
        self._width *= 2


def _value(place: Place) -> float:
    return place[2]
