"""From one line that was understood to a regular expression for all of its shape.

Logs repeat a few shapes a million times. A format's parser sees the first line of a shape; the rest are matched by one
expression in which the numbers stand open, which takes about a microsecond. A number reaches to the character that
follows it, so that the expression never has to go back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from stayfinite.readers.logs.numbers import number
from stayfinite.readers.logs.reading import BATCHES, RANK, TOTAL, Reading

LONGEST_LINE = 4_096
"""Longer lines have no shape: each is parsed by itself."""

_OPEN = re.compile(r"(?<![A-Za-z_\d])\d[\w.+]*|[ \t]+")
_DIGITS = re.compile(r"\d+")
_IN_NUMBERS = frozenset("0123456789.+-eEnNaAiIfFtTyY_")


@dataclass(slots=True)
class Shape:
    """Lines that differ in their numbers alone."""

    pattern: re.Pattern[str]
    reading: Reading
    """Of its first line."""
    names: tuple[str, ...]
    """What the groups of the pattern hold."""
    rank_group: int = -1
    by_process: bool = False
    """The rank group holds a process id."""
    message: str = ""
    """Its text where its lines are messages as well."""


def shape_of(line: str, reading: Reading, rank: tuple[int, int] | None, by_process: bool) -> Shape | None:
    """The shape of a line; None where it has none that could be told from others."""
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
        if name in {TOTAL, BATCHES}:  # the same in every line
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
    """The shape of a message: strictly, the same line with other numbers."""
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
    """A pattern for a number that is followed by a certain character."""
    if "," in text:
        return r"[-+.,\w]+"
    if not after:
        return r"\S++"
    if after in _IN_NUMBERS:
        return r"[-+.\w]+"
    return f"[^{re.escape(after)}]++"


def _opened(text: str, after: str) -> str:
    """Literal text in which numbers may differ, and the width of the space in front of them."""
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
