"""Chunks of a few thousand rows, stored by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
