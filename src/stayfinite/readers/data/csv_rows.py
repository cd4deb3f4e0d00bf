"""Rows of csv and tsv, including quoted newlines, ragged rows and NUL bytes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain, islice

from stayfinite.readers.data.chunk import CHUNK_ROWS, CHUNK_SIZE, Broken, Chunk, Source
from stayfinite.readers.data.csv_dialect import SAMPLE_LINES, SPAN, NumberedRows, dialect_of, header_of, named
from stayfinite.readers.data.text_lines import LONGEST, TextFile, ending, text_file


def csv_chunks(source: Source) -> Iterator[Chunk]:
    """The rows of a table of text."""
    with text_file(source.path, newline="") as file:
        source.encoding = note_encoding(source, file)
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


def note_encoding(source: Source, file: TextFile) -> str:
    """Describe the file's encoding; a byte order mark is added to the remarks."""
    if file.encoding.mark:
        source.remarks.append(f"{source.path.name} starts with a byte order mark")
    return f"{source.path.name}: {file.encoding.why}; read as {file.encoding.name}" if file.encoding.why else ""


class _Table:
    def __init__(self, source: Source, file: TextFile) -> None:
        self.source, self.file = source, file
        self.names: list[str] = []
        self.broken: list[Broken] = []

    def chunks(self, reader: NumberedRows) -> Iterator[Chunk]:
        rows: list[list[str]] = []
        lines: list[int] = []
        size = 0
        for line, row in self._rows(reader):
            rows.append(row)
            lines.append(line)
            size += len(row[-1])
            if len(rows) >= CHUNK_ROWS or size > CHUNK_SIZE // 4:
                yield self._chunk(rows, lines)
                rows, lines, size = [], [], 0
        if rows or self.broken or not self.names:
            yield self._chunk(rows, lines)

    def _chunk(self, rows: list[list[str]], lines: list[int]) -> Chunk:
        values = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in self.names]
        broken, self.broken = self.broken, []
        columns = dict(zip(self.names, values, strict=True))
        return Chunk(path=self.source.path, columns=columns, lines=lines, broken=broken, done=self.file.done)

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
                self.broken.append(Broken(line, f"{len(row)} fields, but the header has {width}"))
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
                self.broken.append(Broken(line, f"{error}: an unclosed quote?", ends=True))
                return
            except (UnicodeError, OSError) as error:
                self.broken.append(Broken(line, f"reading stopped here: {error}", ends=True))
                return
            after = reader.line_num
            if after - line >= SPAN:
                why = f"a quote opened here spans {after - line} lines"
                self.broken.append(Broken(line, why))
            yield line, row
            line = after + 1
