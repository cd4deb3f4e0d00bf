"""Rows of JSON: JSON Lines, or one array of objects or lists, parsed piece by piece."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import CHUNK_SIZE, Broken, Chunk, Gathered, RowsAlike, Source
from stayfinite.readers.data.text_lines import LONGEST, TextFile, rows_file


def jsonl_chunks(source: Source) -> Iterator[Chunk]:
    """The rows of a JSON Lines file."""
    number, inside, alike, found = 0, False, RowsAlike(), Gathered(source)
    with rows_file(source, newline="\n") as file:
        for line in file.safe_lines(found):
            number += not inside
            rest, inside = inside, len(line) >= LONGEST and not line.endswith("\n")
            if not rest and (row := _object(line, number, found.broken, alike)):
                found.add(row, number, len(line))
                if found.full:
                    yield found.chunk(file.done)
        if not found.empty:
            yield found.chunk(file.done)


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


PIECE = 4 << 20
WHOLE = 256 << 20
"""Characters of a JSON document that may be loaded at once if its rows are not one plain array."""
_BETWEEN = lazy_regex(r"[\s,]*")


def json_chunks(source: Source) -> Iterator[Chunk]:
    """The rows of a JSON document."""
    alike, found = RowsAlike(), Gathered(source)
    with rows_file(source, newline=None) as file:
        head = file.text.read(PIECE)
        rows = _array(head, file) if head.lstrip()[:1] == "[" else iter(_document(head, file, source))
        for number, row in enumerate(rows, 1):
            if isinstance(row, Broken):
                found.broken.append(Broken(number, row.why, ends=row.ends))
            elif isinstance(made := alike.row(row), str):
                found.broken.append(Broken(number, made))
            else:
                found.add(made, number)
            if found.full:
                yield found.chunk(file.done)
        if not found.empty:
            yield found.chunk(file.done)


def _array(text: str, file: TextFile) -> Iterator[Any]:
    """Yield the items of an array, reading more text as needed."""
    decode = json.JSONDecoder().raw_decode
    place, ended = text.index("[") + 1, False
    while True:
        between = _BETWEEN.match(text, place)
        place = place if between is None else between.end()
        if text[place : place + 1] == "]":
            return
        try:
            row, after = decode(text, place)
            # A number at the very end may continue in the next piece.
            if after < len(text) or ended:
                yield row
                place = after
                continue
            error: ValueError | RecursionError | None = None
        except (ValueError, RecursionError) as caught:
            error = caught
        if ended or len(text) - place > 16 * CHUNK_SIZE:
            why = "the array is never closed" if place >= len(text) else str(error).partition(": line")[0]
            yield Broken(0, f"invalid JSON from here: {why}", ends=True)
            return
        try:
            piece = file.text.read(PIECE)
        except (UnicodeError, OSError) as caught:
            yield Broken(0, f"reading stopped here: {caught}", ends=True)
            return
        text, place, ended = text[place:] + piece, 0, not piece


def _document(head: str, file: TextFile, source: Source) -> list[Any]:
    """Rows of a document that holds them under a key or by column."""
    text = head + file.text.read(WHOLE)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{source.path} is not JSON: {error}", fix="expected an array of objects, or one object per line (.jsonl)"
        ) from error
    if isinstance(document, dict):
        lists = {name: part for name, part in document.items() if isinstance(part, list)}
        for name, part in lists.items():
            # Several lists of lists are columns of lists.
            if part and (isinstance(part[0], dict) or (isinstance(part[0], list) and len(lists) == 1)):
                source.remarks.append(f"rows taken from {name!r}")
                return part
        if lists and len({len(part) for part in lists.values()}) == 1:
            return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        return [document]
    raise UsageError(f"{source.path}: expected an array of objects, not {str(document)[:40]}", fix="write rows as JSON")
