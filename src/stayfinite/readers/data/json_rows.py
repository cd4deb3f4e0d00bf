"""Rows of JSON Lines, one object or list per line; other lines are reported and skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stayfinite.readers.data.chunk import CHUNK_ROWS, CHUNK_SIZE, Broken, Chunk, Source
from stayfinite.readers.data.csv_rows import note_encoding
from stayfinite.readers.data.nesting import RowsAlike, as_columns
from stayfinite.readers.data.text_lines import LONGEST, text_file


def jsonl_chunks(source: Source) -> Iterator[Chunk]:
    """The rows of a JSON Lines file."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    broken: list[Broken] = []
    size, number, inside, alike = 0, 0, False, RowsAlike()
    with text_file(source.path, newline="\n") as file:
        source.encoding = note_encoding(source, file)
        stream = file.lines()
        while True:
            number += not inside
            try:
                line = next(stream)
            except StopIteration:
                break
            except (UnicodeError, OSError) as error:
                broken.append(Broken(number, f"reading stopped here: {error}", ends=True))
                break
            rest, inside = inside, len(line) >= LONGEST and not line.endswith("\n")
            if rest or not (row := _object(line, number, broken, alike)):
                continue
            rows.append(row)
            lines.append(number)
            size += len(line)
            if len(rows) >= CHUNK_ROWS or size > CHUNK_SIZE:
                yield Chunk(path=source.path, columns=as_columns(rows), lines=lines, broken=broken, done=file.done)
                rows, lines, broken, size = [], [], [], 0
        if rows or broken:
            yield Chunk(path=source.path, columns=as_columns(rows), lines=lines, broken=broken, done=file.done)


def _object(line: str, number: int, broken: list[Broken], alike: RowsAlike) -> dict[str, Any] | None:
    if len(line) >= LONGEST:
        broken.append(Broken(number, f"a line of more than {LONGEST >> 20} MiB"))
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        if line.strip():
            broken.append(Broken(number, f"not JSON: {str(error).partition(': line')[0]}"))
        return None
    row = alike.row(value)
    if isinstance(row, str):
        broken.append(Broken(number, row))
        return None
    return row
