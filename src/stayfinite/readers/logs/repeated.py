"""Lines of a log that no format knows: the same words again and again with other numbers.

::

    [120/5000] obj -> 1.4213   (gn 0.91)
    E001 B00120 | box 0.43 cls 0.41 dfl 0.44 | total 1.28
    Schritt 120: Verlust 1,4213 Gradientennorm 0,91

The numbers at one place of such lines are a column. Its name is what stands before it, or above it in a heading; what
it means follows from the name, or from the numbers: a count rises, a total is the sum of the others. Used only where
no format has found a loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import column_of, is_evaluation, means_loss, plain
from stayfinite.core.series import POINT_COLUMNS, Point, RunSeries, Track, all_finite
from stayfinite.readers.logs.pairs import NUMBER, number
from stayfinite.rules.number_shapes import multiplies

MOST_KINDS, MOST_COLUMNS, LONGEST = 64, 24, 1_024
"""Kinds of lines, numbers on a line, characters of a line."""
ENOUGH, HEADED = 5, 3
"""Lines of a kind from which on they are a table; with a heading above them, fewer do."""
LOOK = 8
"""Lines of a kind after which it is decided whether they measure anything."""
HEADINGS = 3
"""Lines before the first of a kind among which its heading may be."""

_SLOT = lazy_regex(
    rf"(?<![\w.])(?:\d{{1,3}},(?:\d{{1,2}}|\d{{4,}})(?![\d.,])|{NUMBER})|(?<=[^\W\d_])\d+(?![\w.]|\s{{0,2}}[:=])"
)
_DECIMAL_COMMA = lazy_regex(r"\d{1,3},(?:\d{1,2}|\d{4,})")
_DIGITS = lazy_regex(r"\d+")
_NAME = lazy_regex(r"([^\W\d][\w./@-]{0,30}(?: [^\W\d][\w./@-]{0,20}){0,2})\W{0,8}$")
_NAME_BEHIND = lazy_regex(
    r"(?:%|m?s|[KMGT]i?B)?[ =:]{0,3}(\|{0,2}[^\W\d][\w./@|-]{0,30}(?: [^\W\d][\w./@-]{0,20}){0,2})"
)
_NORM_BARS = lazy_regex(r"(?:\|{1,2}|‖)\s?(?:∇|g|dw|grad\w*)\s?(?:\|{1,2}|‖)\W{0,4}$|∇\W{0,4}$", re.IGNORECASE)
_CELLS = lazy_regex(r"\s*[|\t,;│┊]\s*|\s{2,}")
_BETWEEN_WORDS = lazy_regex(r"[\s|,;=:#()│┊]+")
_RULER = lazy_regex(r"[\s|+:=\-─━│┼┌┐└┘├┤┬┴]*")
_UNIT = lazy_regex(
    r"\s?(?:%|[munµ]?s(?:ec\w*)?\b|min\w*\b|h(?:ours?)?\b|(?:it|tok\w*|samples?|img\w*|words?|steps?|ex\w*)\s?/|"
    r"[KMGT]i?B\b|x\b|°|[kM]?Hz|[GT]FLOP|W\b|/s)",
    re.IGNORECASE,
)
"""After a number that is a time, a size, a speed or a share."""
_NOT_TRAINED = lazy_regex(
    r"(?:^|[_/ ])(?:t|dt|time|took|elapsed|eta|dur\w*|ms|s|secs?|seconds?|data|fwd|bwd|io|speed|tps|sps|fps|\w*mem\w*|"
    r"gpu|v?ram|size|throughput|mfu|temp\w*|power|util\w*|port|pid|seed|version|v|year|date|layers?|dim|heads?|params?|"
    r"workers?|tokens?|samples?|rows?|bytes|files?|shards?|len\w*|count|num\w*)(?:$|[_/ ])"
)
_NORM = {"gn", "gnorm", "gradnorm", "gradientennorm", "grad", "gradient"}
_STEPS = {"it", "iter", "step", "schritt", "batch", "b", "update", "i", "n", "шаг", "步"}
_EPOCHS = {"e", "ep", "epoch", "epoche", "époque", "época", "эпоха"}


@dataclass(slots=True)
class _Kind:
    """Lines with the same words."""

    between: list[str]
    """The text before each number of the first such line, and after the last."""
    heading: list[str]
    """Names above the columns, if a line before the first one has as many."""
    columns: list[Track]
    whole: list[bool]
    """Whether a column has integers only."""
    lines: int = 0
    useful: bool = True
    """Whether its numbers may tell something of a training."""

    @property
    def is_table(self) -> bool:
        """Whether there are enough of them."""
        return self.lines >= (HEADED if self.heading else ENOUGH)


@dataclass(slots=True)
class RepeatedLines:
    """Collects the numbers of lines that no format claims."""

    _kinds: dict[str, _Kind] = field(default_factory=dict)
    _before: list[str] = field(default_factory=list)

    def add(self, text: str, line: int, *, claimed: bool = False) -> bool:
        """Take a line's numbers; returns whether lines like it may hold measurements.

        Arguments:
            claimed: a format has read other numbers of the line than a loss.
        """
        if len(text) > LONGEST:
            return False
        slots = list(_SLOT.finditer(text))
        if not any(word[0].isdigit() for word in _BETWEEN_WORDS.split(text) if word):
            self._before = [*self._before, text][-HEADINGS:]
        if not 0 < len(slots) <= MOST_COLUMNS:
            return False
        ends = [0, *(slot.end() for slot in slots)]
        starts = [*(slot.start() for slot in slots), len(text)]
        between = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        key = _DIGITS.sub("0", "#".join(" ".join(words.split()) for words in between))
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:
                self._forget()
            heading = self._heading(len(slots))
            kind = _Kind(between, heading, [Track() for _ in slots], [True for _ in slots])
            self._kinds[key] = kind
        kind.lines += 1
        if not kind.useful:
            return False
        for place, slot in enumerate(slots):
            value = _value(slot[0])
            kind.columns[place].add(None, value, line)
            kind.whole[place] = kind.whole[place] and slot[0].isdigit()
        if kind.lines == LOOK and not all(kind.whole):
            names = [name for name, _ in _Table(kind).measurements()]
            kind.useful = any(name == "grad_norm" or means_loss(name) for name in names) if claimed else bool(names)
        return kind.useful and not all(kind.whole)

    def _heading(self, count: int) -> list[str]:
        for text in reversed(self._before):
            if _RULER.fullmatch(text):
                continue
            cells = [cell for cell in _CELLS.split(text.strip(" \t|│┊#()")) if cell]
            words = text.split()
            return cells if len(cells) == count else words if len(words) == count else []
        return []

    def _forget(self) -> None:
        """Make room: lines that came only once or twice go."""
        rarest = min(self._kinds, key=lambda key: self._kinds[key].lines)
        del self._kinds[rarest]

    def measured(self, run: RunSeries) -> RunSeries:
        """The same run with what these lines measure; unchanged if it has a loss already."""
        if any(point.loss is not None for point in run.points) or any("loss" in name for name in run.metrics):
            return run
        kinds = [kind for kind in self._kinds.values() if kind.useful and kind.is_table and not all(kind.whole)]
        tables = [_Table(kind) for kind in kinds]
        tables = [table for table in tables if table.counts or table.kind.heading or table.kind.lines >= 2 * ENOUGH]
        points = {point.line: point for point in run.points}
        metrics = dict(run.metrics)
        for table in sorted(tables, key=lambda each: -each.kind.lines):
            for name, track in table.measurements():
                if name not in POINT_COLUMNS:
                    metrics.setdefault(name, track)
                    continue
                for line, step, value in zip(track.lines, track.steps, track.values, strict=True):
                    point = points.get(line) or Point(line, step)
                    measured: dict[str, Any] = {name: value}
                    points[line] = point._replace(**measured) if getattr(point, name) is None else point
        if len(points) == len(run) and len(metrics) == len(run.metrics):
            return run
        other = run.with_points(points[line] for line in sorted(points))
        other.metrics, other.kind = metrics, run.kind or "plain"
        return other


class _Table:
    """What the columns of a kind of lines mean."""

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.names = [plain(name) for name in kind.heading or _names(kind)]
        self.evaluates = is_evaluation("_".join(re.findall(r"\w+", kind.between[0].lower()))[:64])
        self.columns = [self._column(place) for place in range(len(kind.columns))]
        self.counts = "step" in self.columns or "epoch" in self.columns

    def _column(self, place: int) -> str:
        """`step`, `epoch`, `loss`, `grad_norm`, `lr`, a metric's name, or "" for what is no measurement."""
        name, values = self.names[place], self.kind.columns[place].values
        known = column_of(name)
        last = name.rpartition("_")[2].rpartition("/")[2]
        if self.kind.whole[place]:
            if known == "epoch" or last in _EPOCHS:
                return "epoch"
            rises = values == sorted(values) and values[0] < values[-1]
            return "step" if rises or known == "step" or last in _STEPS else ""
        if not self.kind.heading and (_NORM_BARS.search(self.kind.between[place]) or name == "|g|"):
            return "grad_norm"
        if known in POINT_COLUMNS:
            return "" if known in ("epoch", "throughput") else known
        if _UNIT.match(self.kind.between[place + 1]) or _NOT_TRAINED.search(name):
            return ""
        if last == "eta" and all(value < 1 for value in values):
            return "lr"
        if last in _NORM:
            return "grad_norm"
        # Without a name it counts only if it goes bad: a healthy one may be anything.
        return name or ("" if all_finite(values) and not multiplies(values) else f"column_{place + 1}")

    def measurements(self) -> Iterator[tuple[str, Track]]:
        """Each column that measures something, by name; those of points by the names of their columns."""
        steps = self._steps()
        for place, column in enumerate(self.columns):
            if column in ("", "step", "epoch"):
                continue
            track = self.kind.columns[place]
            if steps is not None:
                track = replace(track, steps=[steps.get(line) for line in track.lines])
            evaluated = self.evaluates and not is_evaluation(column)
            yield (f"eval_{column}" if evaluated else column), track

    def _steps(self) -> Mapping[int, float] | None:
        """The step by line; None where no column counts up through the whole log."""
        for column in ("step", "epoch"):
            for place, each in enumerate(self.columns):
                track = self.kind.columns[place]
                if each == column and all(before <= after for before, after in pairwise(track.values)):
                    return dict(zip(track.lines, track.values, strict=True))
        return None


def _names(kind: _Kind) -> list[str]:
    """The name of each number: what stands before it, or behind it in lines such as `2.31 loss, 0.9 gnorm`."""
    before = [found[1] if (found := _NAME.search(text)) else "" for text in kind.between[:-1]]
    behind = [found[1] if (found := _NAME_BEHIND.match(text)) else "" for text in kind.between[1:]]
    first = kind.whole.index(False)
    return behind if behind[first] and not before[first] else before


def _value(text: str) -> float:
    return float(text.replace(",", ".")) if _DECIMAL_COMMA.fullmatch(text) else number(text)
