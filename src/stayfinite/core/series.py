"""``RunSeries``: the content of a log, whatever its source.

Bounded: a log of gigabytes becomes at most ``MOST_POINTS`` points. Each time the series is full, every second ordinary
point is dropped and the stride doubles, so points stay evenly spread. Transitions (finite to non-finite and back,
skipped steps) and the last point are always kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

MOST_POINTS = 65_536
"""More than a plot can show or a rule needs."""

MOST_VALUES = 4_096
"""Values per named metric."""

MOST_METRICS = 2_000
"""Metric names; a log may have one per parameter."""

NAN = math.nan


RUNNING_AVERAGE = "running_average"
"""Metric with the running average of the loss, if a log prints both: `Loss 3.2168 (37.0903)`."""


@dataclass(frozen=True, slots=True)
class Message:
    """A line that is not a measurement, and how often it occurred (apart from its numbers)."""

    text: str
    """Without colors, timestamps and rank prefix."""
    source: str
    """File name."""
    line: int
    """First occurrence, counted from 1."""
    count: int = 1
    last_line: int = 0
    """Last occurrence."""
    rank: int | None = None

    @property
    def where(self) -> str:
        """`train.log:17`."""
        return f"{self.source}:{self.line}"


class Point(NamedTuple):
    """One measured line. NaN if the line had NaN, ``None`` if it had no value."""

    line: int
    step: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    loss_scale: float | None = None
    epoch: float | None = None
    throughput: float | None = None
    skipped: bool = False
    """The optimizer step was skipped: an overflow line, or a rising count of skipped iterations."""

    @property
    def bad(self) -> bool:
        """Whether loss or gradient norm is present and not finite."""
        return any(value is not None and not math.isfinite(value) for value in (self.loss, self.grad_norm))


@dataclass(slots=True)
class Track:
    """One named metric over the steps."""

    steps: list[float | None] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    seen: int = 0
    """Values added, including dropped ones."""
    _stride: int = 1
    _finite: bool = True

    def add(self, step: float | None, value: float, line: int) -> None:
        """Append; when full, drop every second value and double the stride, but keep transitions."""
        ordinal = self.seen
        self.seen += 1
        finite = math.isfinite(value)
        if ordinal % self._stride and finite == self._finite:
            return
        self._finite = finite
        if len(self.values) >= MOST_VALUES:
            self._thin()
        self.steps.append(step)
        self.values.append(value)
        self.lines.append(line)

    def _thin(self) -> None:
        self._stride *= 2
        finite = [math.isfinite(value) for value in self.values]
        kept = [place for place in range(len(finite)) if not place % 2 or finite[place] != finite[place - 1]]
        if len(kept) > len(finite) * 3 // 4:  # it changes at every value
            kept = kept[::2]
        self.steps = [self.steps[place] for place in kept]
        self.values = [self.values[place] for place in kept]
        self.lines = [self.lines[place] for place in kept]

    def extend(self, steps: Sequence[float | None], values: Sequence[float | None], lines: Sequence[int]) -> None:
        """Append many values; None is skipped."""
        stride = self._stride
        first = -self.seen % stride
        if not self._finite or not all_finite(values) or len(self.values) + len(values) // stride >= MOST_VALUES:
            for step, value, line in zip(steps, values, lines, strict=True):
                if value is not None:
                    self.add(step, value, line)
            return
        self.seen += len(values)
        self.steps += steps[first::stride]
        self.values += cast(Sequence[float], values[first::stride])
        self.lines += lines[first::stride]


Row = tuple[Any, ...]
"""The fields of a ``Point``, in order."""

Column = Sequence[float | None]
"""One value per line."""

COLUMNS = Point._fields
POINT_COLUMNS = COLUMNS[1:-1]


class RunSeries:
    """Measurements and messages of one run from one source (and one rank, if known)."""

    def __init__(self, source: str, *, kind: str = "", rank: int | None = None, most: int | None = None) -> None:
        """``most``: points to keep, if fewer than ``MOST_POINTS``."""
        self.source = source
        self._most = most
        self.kind = kind
        """Kind of log: `transformers`, `fairseq`, ...; empty if not recognized."""
        self.rank = rank
        self.metrics_left_out = 0
        """Values dropped because there were too many names."""
        self.metrics: dict[str, Track] = {}
        """Evaluation metrics and all other named numbers: `eval_loss`, `bleu`, `loss_cls`, `rewards/mean`."""
        self.messages: list[Message] = []
        self.opening: list[str] = []
        """The first lines as they are written; empty for other ranks than the first."""
        self.lines = 0
        """Lines read."""
        self.points_seen = 0
        """Measurements read, including dropped ones."""
        self.loss_name = ""
        """The loss's own name, such as `td_loss` or `mse`, if it is known by its course alone."""
        self.total_steps: float | None = None
        """Planned steps, if the log has them (`122/250000`)."""
        self.total_epochs: float | None = None
        self.counted = self.counted_none = 0
        """Lines that count skipped steps since the previous line; and those of them between which no step was taken."""
        self.counts_intervals = False
        """Such lines are several steps apart: a line with skips is no skipped step."""
        self.skipped_at_once = 0
        """The most steps between two such lines that were all skipped."""
        self._rows: list[tuple[int, Row]] = []  # (ordinal, row)
        self._stride = 1
        self._bad = False
        self._last: tuple[int, Row] | None = None  # the newest row, until it is stored

    def __len__(self) -> int:
        return len(self._kept())

    def with_points(self, points: Iterable[Point]) -> RunSeries:
        """The same run with other points; messages and metrics are shared."""
        other = RunSeries(self.source, kind=self.kind, rank=self.rank)
        other.metrics, other.messages, other.opening = self.metrics, self.messages, self.opening
        other.lines, other.total_steps, other.total_epochs = self.lines, self.total_steps, self.total_epochs
        other.counted, other.counted_none = self.counted, self.counted_none
        other.skipped_at_once, other.counts_intervals = self.skipped_at_once, self.counts_intervals
        other.loss_name = self.loss_name
        for point in points:
            other._append(point)
        return other

    def add(
        self,
        line: int,
        step: float | None = None,
        loss: float | None = None,
        grad_norm: float | None = None,
        lr: float | None = None,
        loss_scale: float | None = None,
        epoch: float | None = None,
        throughput: float | None = None,
        skipped: bool = False,
    ) -> None:
        """Append one measured line."""
        self._append((line, step, loss, grad_norm, lr, loss_scale, epoch, throughput, skipped))

    def extend(
        self,
        lines: Sequence[int],
        columns: Mapping[str, Column],
        skipped: Sequence[bool] | None = None,
    ) -> None:
        """Append many measured lines; each column has one value per line."""
        count = len(lines)
        losses, norms = columns.get("loss"), columns.get("grad_norm")
        parts: list[Column] = [columns.get(name) or [None] * count for name in POINT_COLUMNS]
        flags = skipped or [False] * count
        ordinal, stride, kept = self.points_seen, self._stride, self._rows
        if (
            not self._bad
            and True not in flags
            and all_finite(losses)
            and all_finite(norms)
            and len(kept) + count // stride < (self._most or MOST_POINTS)
        ):  # no transition: take only the rows on the stride
            first = -ordinal % stride
            chosen: Iterator[Row] = zip(
                lines[first::stride], *(part[first::stride] for part in parts), flags[first::stride], strict=True
            )
            kept.extend(zip(range(ordinal + first, ordinal + count, stride), chosen, strict=True))
            self.points_seen = ordinal + count
            last = (lines[-1], *(part[-1] for part in parts), flags[-1])
            self._last = kept[-1] if kept and kept[-1][0] == ordinal + count - 1 else (ordinal + count - 1, last)
            return
        for row in zip(lines, *parts, flags, strict=True):
            self._append(row)

    def _append(self, row: Row) -> None:
        bad = _bad(row)
        self._last = pair = (self.points_seen, row)
        if not self.points_seen % self._stride or bad != self._bad or row[8]:
            if len(self._rows) >= (self._most or MOST_POINTS):
                self._stride *= 2
                self._rows = _thinned(self._rows, self._stride)
            self._rows.append(pair)
            self._bad = bad
        self.points_seen += 1

    def measure(self, name: str, value: float, *, step: float | None = None, line: int = 0) -> None:
        self.track(name).add(step, value, line)

    def track(self, name: str) -> Track:
        """A named metric, created if new."""
        track = self.metrics.get(name)
        if track is None:
            track = Track()
            if len(self.metrics) < MOST_METRICS:
                self.metrics[name] = track
            else:
                self.metrics_left_out += 1  # a line that keeps making up names
        return track

    @property
    def points(self) -> Iterator[Point]:
        """All stored points, in log order."""
        for _, row in self._kept():
            yield Point(*row)

    @property
    def last(self) -> Point | None:
        return None if self._last is None else Point(*self._last[1])

    def column(self, name: str) -> list[tuple[float, float, int]]:
        """``(step, value, line)`` for each value of this column; the ordinal replaces a missing step."""
        index = COLUMNS.index(name)
        found: list[tuple[float, float, int]] = []
        for ordinal, row in self._kept():
            if (value := row[index]) is not None:
                found.append((float(ordinal) if row[1] is None else row[1], float(value), row[0]))
        return found

    def where(self, line: int) -> str:
        """`train.log:17`."""
        return f"{self.source}:{line}"

    def _kept(self) -> Sequence[tuple[int, Row]]:
        if self._last is None or (self._rows and self._rows[-1] is self._last):
            return self._rows
        return [*self._rows, self._last]


def _thinned(rows: list[tuple[int, Row]], stride: int) -> list[tuple[int, Row]]:
    """Keep about half: rows on the wider stride, finite to non-finite transitions, and skipped steps."""
    bad = [_bad(row) for _, row in rows]
    kept = [
        pair
        for index, pair in enumerate(rows)
        if not pair[0] % stride or pair[1][8] or bad[index] != (index > 0 and bad[index - 1])
    ]
    if len(kept) > len(rows) * 3 // 4:  # it changes at every point, so no point matters more
        return rows[::2]
    return kept


def _bad(row: Row) -> bool:
    loss, norm = row[2], row[3]
    return not ((loss is None or math.isfinite(loss)) and (norm is None or math.isfinite(norm)))


def all_finite(values: Column | None) -> bool:
    """Whether the column is absent or all values are present and finite. May be False if the sum overflows."""
    if values is None:
        return True
    try:
        return math.isfinite(sum(cast(Sequence[float], values)))
    except TypeError:  # contains None
        return False
