"""How a table of text is written: delimiter, quotes, header."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

SAMPLE_LINES = 400
SPAN = 1000
"""Lines over which no honest quoted field runs."""


class NumberedRows(Protocol):
    """What `csv.reader` gives: rows, and how many lines they have taken so far."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How the cells of a line are told apart."""

    delimiter: str
    quoted: bool = True
    """Quotes have a meaning; in many tsv files they have none."""
    escaped: bool = False
    """A quote within a field is written with a backslash instead of twice."""

    def rows(self, lines: Iterable[str]) -> NumberedRows:
        """The rows that these lines hold."""
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE,
            escapechar="\\" if self.escaped else None,
            doublequote=not self.escaped,
        )


class Evenness(NamedTuple):
    """How some lines come out under a dialect."""

    share: float
    """Of rows that are as wide as the header."""
    width: int
    rows: int

    def beats(self, other: Evenness) -> bool:
        """More even; else wider; else in more rows."""
        if abs(self.share - other.share) > 0.02:
            return self.share > other.share
        return (self.width, self.rows) > (other.width, other.rows)


def dialect_of(lines: Sequence[str], *, ending: str) -> Dialect:
    """The dialect under which the first lines come out most evenly."""
    delimiters = "\t,;|" if ending in (".tsv", ".tab") else ",\t;|"
    best, mark = Dialect(delimiter=delimiters[0]), Evenness(0.0, 0, 0)
    escapes = (False, True) if any('\\"' in line for line in lines) else (False,)
    for delimiter in delimiters:
        quotings = [(True, escape) for escape in escapes] + [(False, False)]
        dialects = [Dialect(delimiter=delimiter, quoted=quoted, escaped=escaped) for quoted, escaped in quotings]
        found, dialect = max(((_evenness(lines, each), each) for each in dialects), key=_likelihood)
        if found.beats(mark):
            best, mark = dialect, found
    return best


def _likelihood(found: tuple[Evenness, Dialect]) -> tuple[float, bool, int, int]:
    """What decides between ways of quoting under one delimiter: a single row more that comes out even is enough.

    Where they are alike, quotes have a meaning, and a newline within them belongs to the field; but not where tabs
    separate: there a quote is mostly a character, and two that mean nothing would glue rows into one.
    """
    evenness, dialect = found
    return evenness.share, dialect.quoted and dialect.delimiter != "\t", evenness.width, evenness.rows


def _evenness(lines: Sequence[str], dialect: Dialect) -> Evenness:
    """How evenly the lines come out; nothing for a table of one column."""
    try:
        reader = dialect.rows(lines)
        widths, spans, before = [], [], 0
        for row in islice(reader, SAMPLE_LINES):
            widths.append(len(row))
            spans.append(reader.line_num - before)
            before = reader.line_num
    except csv.Error:
        return Evenness(0.0, 0, 0)
    if not widths or widths[0] < 2 or max(spans) > SAMPLE_LINES // 4:
        return Evenness(0.0, 0, 0)
    filled = [width for width in widths if width]
    return Evenness(Counter(filled)[widths[0]] / len(filled), widths[0], len(filled))


def header_of(first: Sequence[str], second: Sequence[str]) -> list[str] | None:
    """The names of the columns, or None where the first row is data already."""
    cells = [cell.strip() for cell in first]
    if not any(cells) or any(len(cell) > 120 for cell in cells):
        return None
    numbers = sum(_number(cell) for cell in cells)
    if numbers and numbers * 2 >= len([cell for cell in cells if cell]):
        return None
    if len(cells) == 2 == len(second) and _prose(cells) and _prose(second):
        # Two sentences side by side are a pair, not two names.
        return None
    return cells


def _prose(cells: Sequence[str]) -> bool:
    return all(len(cell.split()) > 3 for cell in cells)


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def named(cells: Sequence[str]) -> list[str]:
    """Names that are not empty and not twice the same."""
    seen: Counter[str] = Counter()
    names = []
    for number, cell in enumerate(cells, 1):
        name = cell or f"column {number}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names
