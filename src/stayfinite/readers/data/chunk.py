"""Chunks of a few thousand rows, stored by column, and JSON values as rows.

Keys become columns, nested objects are opened one level, list items are numbered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHUNK_ROWS = 2048
CHUNK_SIZE = 8 << 20  # a chunk ends at this many rows or characters, whichever comes first


@dataclass(frozen=True, slots=True)
class Broken:
    """A place in a file that is not a complete row."""

    line: int
    why: str
    ends: bool = False
    """Whether nothing after this place can be read: the file is truncated or damaged."""


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Some rows of one file."""

    path: Path
    columns: dict[str, list[Any]]
    """Values by column, of equal length; None if a row has no value."""
    lines: list[int]
    """Where each row starts: line number in text files, row number in others; from 1."""
    broken: list[Broken] = field(default_factory=list)
    done: int = 0
    """Bytes of the file read so far."""


@dataclass(slots=True, kw_only=True)
class Source:
    """A file, or an aligned pair of files, to read rows from."""

    path: Path
    kind: str
    """csv, json, jsonl, parquet, arrow, txt, tmx, tar, hub, aligned, texts."""
    size: int
    chunks: Callable[[], Iterator[Chunk]]
    remarks: list[str] = field(default_factory=list)
    """Notes for people about how it was read: `read as cp1252`."""
    encoding: str = ""
    """Set during reading if it is not UTF-8: the encoding used, and why."""
    files: tuple[Path, ...] = ()
    """The two files of an aligned pair."""
    most: int = 0
    """Bytes after which reading stops; 0 for no limit."""

    @property
    def share(self) -> int:
        """Bytes to be read."""
        return min(self.size, self.most) if self.most else self.size


NO_ROW = "expected an object with fields, or a list such as [question, answer], not"


def counted(row: Sequence[Any]) -> dict[str, Any]:
    """Name list items like the columns of a table without a header."""
    return {f"column {number}": value for number, value in enumerate(row, 1)}


class RowsAlike:
    """Converts JSON values to rows: all objects, all lists of one length, or all texts."""

    def __init__(self) -> None:
        self._width: int | None = None

    def row(self, value: Any) -> dict[str, Any] | str:
        """The row, or why the value is not one."""
        if isinstance(value, str):
            value = {"text": value}
        if isinstance(value, dict) and value:
            found, width = value, 0
        elif isinstance(value, list) and len(value) > 1:
            found, width = counted(value), len(value)
        else:
            told = (_kind(len(value)) if value else "[]") if isinstance(value, list) else json.dumps(value)[:40]
            return f"{NO_ROW} {told}"
        if self._width is None:
            self._width = width
        if width != self._width:
            return f"expected {_kind(self._width)} as in the first row, not {_kind(width)}"
        return found


def _kind(width: int) -> str:
    return f"a list of {width} value{'s' * (width > 1)}" if width else "an object with fields"


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Convert rows with different keys to columns; None if a row lacks a key."""
    if rows and all(row.keys() == rows[0].keys() for row in rows):
        columns = {str(name): [row[name] for row in rows] for name in rows[0]}
    else:
        names: dict[str, None] = {}
        for row in rows:
            names |= dict.fromkeys(row)
        columns = {str(name): [row.get(name) for row in rows] for name in names}
    return unnested(columns)


def unnested(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Open columns of objects: ``{"en": ..., "de": ...}`` in `translation` fills `translation.en`, `translation.de`."""
    flat: dict[str, list[Any]] = {}
    for name, values in columns.items():
        first = next((value for value in values if value is not None), None)
        if not isinstance(first, Mapping):
            flat[name] = values
            continue
        keys: dict[str, None] = {}
        for value in values:
            if isinstance(value, Mapping):
                keys |= dict.fromkeys(value)
        for key in keys:
            flat[f"{name}.{key}"] = [value.get(key) if isinstance(value, Mapping) else None for value in values]
    return flat


Columns = dict[str, list[Any]]


class Gathered:
    """The rows of a file since its last chunk, and the places that are none."""

    def __init__(
        self, source: Source, columns: Callable[[list[Any]], Columns] = as_columns, *, most: int = CHUNK_SIZE
    ) -> None:
        self._path, self._columns, self._most = source.path, columns, most
        self.rows: list[Any] = []
        self.lines: list[int] = []
        self.broken: list[Broken] = []
        self.size = 0

    def add(self, row: Any, line: int, size: int = 0) -> None:
        """Keep a row of so many characters."""
        self.rows.append(row)
        self.lines.append(line)
        self.size += size

    @property
    def full(self) -> bool:
        """Whether it is time for a chunk."""
        return len(self.rows) >= CHUNK_ROWS or self.size > self._most

    @property
    def empty(self) -> bool:
        return not (self.rows or self.broken)

    def chunk(self, done: int) -> Chunk:
        """Return what was gathered when so many bytes were read, and begin anew."""
        columns = self._columns(self.rows)
        made = Chunk(path=self._path, columns=columns, lines=self.lines, broken=self.broken, done=done)
        self.rows, self.lines, self.broken, self.size = [], [], [], 0
        return made
