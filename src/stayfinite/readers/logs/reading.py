"""A parsed line: where its numbers are, what each one means, and the lines that look like it.

Spans are kept instead of values: a ``Shape`` turns them into a regular expression for all lines of that shape. Logs
repeat a few shapes a million times. A format's parser sees the first line of a shape; the rest match one expression
with the numbers left open, at about a microsecond each. A number extends to the character after it, so the expression
never backtracks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import NO_METRICS, column_of, is_evaluation, name_rank, plain
from stayfinite.readers.logs.pairs import Pair, number

BATCH = ".batch"  # batch number within its epoch
BATCHES = ".batches"  # batches per epoch
TOTAL = ".total"  # steps in the run
TOTAL_EPOCHS = ".epochs"
SKIPS_HERE = ".skips"  # steps skipped since the last line
NANS_HERE = ".nans"
"""Steps with a NaN loss or gradient since the last line, which frameworks leave out."""
SKIPS_EVER = ".skips_ever"  # steps skipped since the start
OTHER = ".other"  # a number that is ignored
RANK = ".rank"
_ETA = lazy_regex(r"\beta: (?:\d+ days?, )?[\d:]+")
_TOTALS = {"total_steps", "max_steps", "total_iters", "max_iters", "num_training_steps"}


SCORES = {"acc", "accuracy", "f1", "auc", "bleu", "dice", "iou", "miou", "acc@1", "acc@5", "top1", "top5"}
"""Bare names of scores: of the evaluation, where the line is one."""


_GROUPS = {"batch": BATCH, "batches": BATCHES, "total": TOTAL, "rank": RANK, "skips": SKIPS_EVER}
"""Names of groups that cannot be written in a regular expression."""


def fields_of(match: re.Match[str]) -> list[Pair]:
    """The named groups of a match that took part in it, as fields; `mode` is none."""
    found = [name for name, text in match.groupdict().items() if text is not None and name != "mode"]
    return [(_GROUPS.get(name, name), *match.span(name)) for name in found]


@dataclass(slots=True)
class Reading:
    """One parsed line."""

    kind: str
    """The log format, such as `megatron`."""
    fields: list[Pair] = field(default_factory=list)
    """``(name, start, end)``: a ``Point`` column, one of the dotted names above, or a metric name."""
    wild: list[tuple[int, int, str]] = field(default_factory=list)
    """``(start, end, pattern)``: text that may differ between lines of this shape."""
    constants: dict[str, float] = field(default_factory=dict)
    """Columns whose value is implied by the words, as in `Loss is nan`."""
    skipped: bool = False
    is_point: bool = True
    """False: only its metrics and its position in the run are used."""
    is_message: bool = False
    """Whether the line is also kept as a message."""
    moves: bool = False
    """Its step or batch is the position in the run, without a measurement: a progress bar."""
    loss_is_expected: bool = False
    """The framework omits the loss when it is NaN."""
    first_epoch: int = 1
    """The number of the first epoch in this format."""
    epoch_is_step: bool = False
    """One such line per epoch, unless other lines have steps."""
    has_shape: bool = True
    """False: the meaning depends on earlier lines, so each line is parsed again."""
    is_named: bool = True
    """False: its loss has no name, and gives way to those of the log that have one."""
    loss_is_sum: bool = False
    """The line has only terms of the loss; their sum is used unless the log has the total elsewhere."""
    is_summary: bool = False
    """An average over the whole run, at its end."""

    def take(self, pairs: list[Pair], *, evaluation: bool = False) -> None:
        """Assign each written name to its column if known, else to a metric."""
        names = [plain(raw) for raw, _, _ in pairs]
        of_evaluation = evaluation or (any(map(is_evaluation, names)) and "loss" not in map(column_of, names))
        taken = {name for name, _, _ in self.fields}
        best: dict[str, str] = {}
        for raw, _, _ in pairs:
            name = plain(raw)
            column = column_of(name)
            if column and (column not in best or name_rank(name) < name_rank(best[column])):
                best[column] = name
        for raw, start, end in pairs:
            name = plain(raw)
            if name == "time" and "data_time" in names:
                name = "iter_time"  # of which that much went to the data
            column = TOTAL if name in _TOTALS else column_of(name)
            if evaluation and column in {"loss", "grad_norm", "lr", "throughput"}:
                column, name = "", "eval_loss" if name == best.get("loss") else f"eval_{name}"
            elif of_evaluation and name in SCORES:
                name = f"eval_{name}"
            elif name != best.get(column, name):
                column = ""
            if column and column not in taken:
                taken.add(column)
                self.fields.append((column, start, end))
            elif name and name not in taken and name not in NO_METRICS:
                taken.add(name)
                self.fields.append((name, start, end))

    def without_eta(self, pairs: list[Pair], line: str, start: int) -> list[Pair]:
        """Mark the ETA as variable text, since it is printed with and without days."""
        eta = _ETA.search(line, start)
        if eta is None:
            return pairs
        self.wild.append((*eta.span(), _ETA.pattern))
        return [pair for pair in pairs if not eta.start() <= pair[1] < eta.end()]

    def has(self, *names: str) -> bool:
        """Whether any of these fields is present."""
        return any(name in names for name, _, _ in self.fields)


LONGEST_LINE = 4_096  # longer lines get no shape and are parsed one by one

_OPEN = lazy_regex(r"(?<![A-Za-z_\d])\d[\w.+]*|[ \t]+")
_DIGITS = lazy_regex(r"\d+")
_IN_NUMBERS = frozenset("0123456789.+-eEnNaAiIfFtTyY_")


@dataclass(slots=True)
class Shape:
    """Lines that differ only in their numbers."""

    pattern: re.Pattern[str]
    reading: Reading
    """From its first line."""
    names: tuple[str, ...]
    """What each group of the pattern holds."""
    rank_group: int = -1
    by_process: bool = False
    """The rank group holds a process id."""
    message: str = ""
    """The text, if its lines are also messages."""


def shape_of(line: str, reading: Reading, rank: tuple[int, int] | None, by_process: bool) -> Shape | None:
    """Return the shape of a line, or None if it would be ambiguous."""
    if len(line) > LONGEST_LINE:
        return None
    spans = [(start, end, name, "") for name, start, end in reading.fields]
    spans += [(start, end, "", pattern) for start, end, pattern in reading.wild]
    if rank is not None and not reading.has(RANK):
        spans.append((*rank, RANK, ""))
    spans.sort()
    parts: list[str] = []
    names: list[str] = []
    wholes: dict[str, float] = {}
    place = 0
    for start, end, name, pattern in spans:
        if start < place:
            return None
        parts.append(_opened(line[place:start], line[start : start + 1]))
        if name in {TOTAL, TOTAL_EPOCHS, BATCHES}:  # the same in every line
            wholes[name] = number(line[start:end])
            parts.append(re.escape(line[start:end]))
        elif name:
            names.append(name)
            parts.append(f"({_number(line[start:end], line[end : end + 1])})")
        else:
            parts.append(pattern)
        place = end
    parts.append(_opened(line[place:], ""))
    if wholes:
        fields = [field for field in reading.fields if field[0] not in wholes]
        reading = replace(reading, fields=fields, constants=reading.constants | wholes)
    rank_group = names.index(RANK) if RANK in names else -1
    return Shape(re.compile("".join(parts)), reading, tuple(names), rank_group, by_process)


def message_shape(line: str, start: int, rank: tuple[int, int] | None, by_process: bool) -> Shape:
    """The shape of a message: the same line with other numbers."""
    if rank is None:
        pattern = _digits(line)
    else:
        pattern = f"{_digits(line[: rank[0]])}(\\d++){_digits(line[rank[1] :])}"
    reading = Reading("", is_point=False, is_message=True)
    names = () if rank is None else (RANK,)
    return Shape(re.compile(pattern), reading, names, len(names) - 1, by_process, line[start:].rstrip())


def _digits(text: str) -> str:
    return r"\d++".join(map(re.escape, _DIGITS.split(text)))


def _number(text: str, after: str) -> str:
    """A pattern for a number followed by the given character."""
    if "," in text:
        return r"[-+.,\w]+"
    if not after:
        return r"\S++"
    if after in _IN_NUMBERS:
        return r"[-+.\w]+"
    return f"[^{re.escape(after)}]++"


def _opened(text: str, after: str) -> str:
    """Escape literal text, leaving numbers and the spaces before them variable."""
    parts: list[str] = []
    place = 0
    for match in _OPEN.finditer(text):
        parts.append(re.escape(text[place : match.start()]))
        place = match.end()
        found = match[0]
        behind = text[place : place + 1] or after
        if found[0].isdigit():
            parts.append(_number(found, behind))
        elif found == " " and match.start() and not (behind.isdigit() or place == len(text)):
            parts.append(" ")
        else:
            parts.append(r"[ \t]++" if "\t" in found else " ++")
    parts.append(re.escape(text[place:]))
    return "".join(parts)


MOST_SHAPES = 12
MOST_KEYS = 2_000

_NUMBERS = lazy_regex(r"(?<![A-Za-z_\d])\d[\w.+-]*|(?i:\bnan\b|\binf\b)")
"""Numbers that may vary in a shape besides its fields. The 17 of `metric_17` is part of a name and stays fixed."""


class ShapeBook:
    """Finds the shape of a line and learns new ones."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._met: set[str] = set()

    def find(self, line: str) -> tuple[Shape, re.Match[str]] | None:
        """Return the shape of a line and the match with its numbers."""
        for place, shape in enumerate(self._shapes):
            match = shape.pattern.fullmatch(line)
            if match is not None:
                if place > 1:
                    self._shapes.insert(0, self._shapes.pop(place))
                return shape, match
        return None

    def learn(
        self, line: str, reading: Reading, rank: tuple[int, int] | None, by_process: bool
    ) -> tuple[Shape, re.Match[str]] | None:
        """Learn the shape of a measured line when its second example arrives."""
        if reading.is_summary or not reading.has_shape or not reading.fields:
            return None
        key = _key(line, reading)
        if key not in self._met:
            if len(self._met) >= MOST_KEYS:
                self._met.clear()
            self._met.add(key)
            return None
        shape = shape_of(line, reading, rank, by_process)
        match = shape.pattern.fullmatch(line) if shape else None
        if shape is None or match is None:
            return None
        self._keep(shape)
        return shape, match

    def learn_message(self, line: str, start: int, rank: tuple[int, int] | None, by_process: bool) -> None:
        self._keep(message_shape(line, start, rank, by_process))

    def forget_messages(self) -> None:
        """Forget message shapes, because such lines may be something else from here on."""
        self._shapes = [shape for shape in self._shapes if shape.reading.kind]

    def _keep(self, shape: Shape) -> None:
        self._shapes.insert(0, shape)
        del self._shapes[MOST_SHAPES:]


def _key(line: str, reading: Reading) -> str:
    """A line without its numbers, equal for all lines of one shape."""
    parts, place = [], 0
    for start, end in sorted((start, end) for _, start, end in reading.fields):
        if start >= place:
            parts.append(line[place:start])
            place = end
    parts.append(line[place:])
    return "#".join(_NUMBERS.sub("#", part) for part in parts)
