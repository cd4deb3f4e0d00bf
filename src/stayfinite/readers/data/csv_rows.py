"""Rows of csv and tsv: delimiter, quoting and header are detected; quoted newlines, ragged rows and NUL bytes pass."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple, Protocol

from stayfinite.readers.data.chunk import CHUNK_SIZE, Broken, Chunk, Gathered, Source
from stayfinite.readers.data.text_lines import LONGEST, TextFile, ending, rows_file

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


def csv_chunks(source: Source) -> Iterator[Chunk]:
    """The rows of a table of text."""
    with rows_file(source, newline="") as file:
        lines = file.lines()
        head = list(islice(lines, SAMPLE_LINES))
        if source.path.suffix and ending(source.path) in (".tsv", ".tab") and head:
            head[0] = head[0].lstrip("\ufeff")
        dialect = dialect_of(head, ending=ending(source.path))
        before = csv.field_size_limit(LONGEST)
        try:
            yield from _Table(source, file).chunks(dialect.rows(chain(head, lines)))
        finally:
            csv.field_size_limit(before)


class _Table:
    def __init__(self, source: Source, file: TextFile) -> None:
        self.source, self.file = source, file
        self.names: list[str] = []
        self.found = Gathered(source, self._columns, most=CHUNK_SIZE // 4)

    def chunks(self, reader: NumberedRows) -> Iterator[Chunk]:
        for line, row in self._rows(reader):
            self.found.add(row, line, len(row[-1]))
            if self.found.full:
                yield self.found.chunk(self.file.done)
        if not self.found.empty or not self.names:
            yield self.found.chunk(self.file.done)

    def _columns(self, rows: list[list[str]]) -> dict[str, list[str]]:
        values = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in self.names]
        return dict(zip(self.names, values, strict=True))

    def _rows(self, reader: NumberedRows) -> Iterator[tuple[int, list[str]]]:
        numbered = self._numbered(reader)
        # Blank lines may precede the header.
        first = next(((line, row) for line, row in numbered if row), None)
        if first is None:
            return
        second = next(numbered, None)
        names = header_of(first[1], second[1] if second else ())
        if names is None:
            self.source.remarks.append(f"{self.source.path.name} has no header: columns are numbered")
            self.names = named([""] * len(first[1]))
        else:
            self.names = named(names)
        width = len(self.names)
        held = [row for row in ((first if names is None else None), second) if row is not None]
        for line, row in chain(held, numbered):
            if len(row) != width:
                if not row or (width > 1 and not any(cell.strip() for cell in row)):
                    continue
                self.found.broken.append(Broken(line, f"{len(row)} fields, but the header has {width}"))
                row = [cell for cell, _ in zip(chain(row, [""] * width), self.names, strict=False)]
            yield line, row

    def _numbered(self, reader: NumberedRows) -> Iterator[tuple[int, list[str]]]:
        line = 1
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                self.found.broken.append(Broken(line, f"{error}: an unclosed quote?", ends=True))
                return
            except (UnicodeError, OSError) as error:
                self.found.broken.append(Broken(line, f"reading stopped here: {error}", ends=True))
                return
            after = reader.line_num
            if after - line >= SPAN:
                why = f"a quote opened here spans {after - line} lines"
                self.found.broken.append(Broken(line, why))
            yield line, row
            line = after + 1
