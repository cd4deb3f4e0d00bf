"""Detect the delimiter, quoting and header of a text table."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

SAMPLE_LINES = 400
SPAN = 1000  # most lines that a quoted field may span


class NumberedRows(Protocol):
    """The interface of `csv.reader`: rows and the line count so far."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a line is split into cells."""

    delimiter: str
    quoted: bool = True
    """Quotes are special; in many tsv files they are not."""
    escaped: bool = False
    """A quote inside a field is escaped with a backslash instead of doubled."""

    def rows(self, lines: Iterable[str]) -> NumberedRows:
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE,
            escapechar="\\" if self.escaped else None,
            doublequote=not self.escaped,
        )


class Evenness(NamedTuple):
    """How regularly some lines parse under a dialect."""

    share: float
    """Share of rows as wide as the header."""
    width: int
    rows: int

    def beats(self, other: Evenness) -> bool:
        """Compare by regularity, then width, then rows."""
        if abs(self.share - other.share) > 0.02:
            return self.share > other.share
        return (self.width, self.rows) > (other.width, other.rows)


def dialect_of(lines: Sequence[str], *, ending: str) -> Dialect:
    """The dialect under which the first lines parse most regularly."""
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
    """Sort key between quoting styles of one delimiter: one more regular row is enough.

    On a tie, quotes are special and may contain newlines. With tabs they are mostly plain characters, and treating them
    as special would merge rows.
    """
    evenness, dialect = found
    return evenness.share, dialect.quoted and dialect.delimiter != "\t", evenness.width, evenness.rows


def _evenness(lines: Sequence[str], dialect: Dialect) -> Evenness:
    """How regularly the lines parse; 0 for a table of one column."""
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
    """The column names, or None if the first row is data."""
    cells = [cell.strip() for cell in first]
    if not any(cells) or any(len(cell) > 120 for cell in cells):
        return None
    numbers = sum(_number(cell) for cell in cells)
    if numbers and numbers * 2 >= len([cell for cell in cells if cell]):
        return None
    if len(cells) == 2 == len(second) and _prose(cells) and _prose(second):
        # Two sentences are a data row, not two names.
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
    """Fill in empty names and make duplicates unique."""
    seen: Counter[str] = Counter()
    names = []
    for number, cell in enumerate(cells, 1):
        name = cell or f"column {number}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names
