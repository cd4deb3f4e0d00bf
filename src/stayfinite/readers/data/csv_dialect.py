"""How a table of text is written: delimiter, quotes, header."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

SAMPLE_LINES = 400
SPAN = 1000
"""Lines over which no honest quoted field runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What `csv.reader` is told."""

    delimiter: str
    quoted: bool = True
    """Quotes have a meaning; in many tsv files they have none."""
    escaped: bool = False
    """A quote within a field is written with a backslash instead of twice."""

    def options(self) -> dict[str, object]:
        """As keyword arguments of `csv.reader`."""
        return {
            "delimiter": self.delimiter,
            "quoting": csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE,
            "escapechar": "\\" if self.escaped else None,
            "doublequote": not self.escaped,
        }


def dialect_of(lines: Sequence[str], *, ending: str) -> Dialect:
    """The dialect under which the first lines come out most evenly."""
    delimiters = "\t,;|" if ending in (".tsv", ".tab") else ",\t;|"
    best, mark = Dialect(delimiter=delimiters[0]), (0.0, 0)
    escapes = (False, True) if any('\\"' in line for line in lines) else (False,)
    for delimiter in delimiters:
        for quoted, escaped in [(True, escape) for escape in escapes] + [(False, False)]:
            dialect = Dialect(delimiter=delimiter, quoted=quoted, escaped=escaped)
            found = _evenness(lines, dialect)
            if found > mark and (found[0] - mark[0] > 0.02 or found[1] > mark[1]):
                best, mark = dialect, found
    return best


def _evenness(lines: Sequence[str], dialect: Dialect) -> tuple[float, int]:
    """The share of lines in rows as wide as the header, and that width; nothing for a table of one column."""
    try:
        reader = csv.reader(lines, **dialect.options())  # type: ignore[arg-type]
        widths, spans, before = [], [], 0
        for row in islice(reader, SAMPLE_LINES):
            widths.append(len(row))
            spans.append(reader.line_num - before)
            before = reader.line_num
    except csv.Error:
        return 0.0, 0
    if not widths or widths[0] < 2 or max(spans) > SAMPLE_LINES // 4:
        return 0.0, 0
    filled = [width for width in widths if width]
    return Counter(filled)[widths[0]] / len(filled), widths[0]


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
