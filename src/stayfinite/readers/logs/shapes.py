"""Generalize one parsed line into a regular expression for all lines of its shape.

Logs repeat a few shapes a million times. A format's parser sees the first line of a shape; the rest match one
expression with the numbers left open, at about a microsecond each. A number extends to the character after it, so the
expression never backtracks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.numbers import number
from stayfinite.readers.logs.reading import BATCHES, RANK, TOTAL, TOTAL_EPOCHS, Reading

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
