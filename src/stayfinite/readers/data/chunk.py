"""Rows on their way from a file: a few thousand at a time, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHUNK_ROWS = 2048
CHUNK_SIZE = 8 << 20
"""A chunk ends at so many rows or so many characters, whichever comes first."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A place of a file that is no row, or only half of one."""

    line: int
    why: str
    ends: bool = False
    """Whether nothing after this place can be read: the file is cut or damaged."""


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Some rows of one file."""

    path: Path
    columns: dict[str, list[Any]]
    """Values by column, all of the same length; None where a row has no value."""
    lines: list[int]
    """Where each row begins: the line of a text file, the number of the row in others; both from 1."""
    broken: list[Broken] = field(default_factory=list)
    done: int = 0
    """Bytes of the file that have been read."""


@dataclass(slots=True, kw_only=True)
class Source:
    """One file, or two aligned ones, that rows come from."""

    path: Path
    kind: str
    """csv, json, jsonl, parquet, arrow, txt, tmx, tar, hub, aligned, texts."""
    size: int
    chunks: Callable[[], Iterator[Chunk]]
    remarks: list[str] = field(default_factory=list)
    """What a person should know of how it was read: `read as cp1252`."""
    encoding: str = ""
    """Set while it is read, where it is not UTF-8: what it was read as, and why."""
    files: tuple[Path, ...] = ()
    """The two files of an aligned pair."""
    most: int = 0
    """Bytes after which reading stops; 0 for the whole file."""

    @property
    def share(self) -> int:
        """Bytes of it that are read."""
        return min(self.size, self.most) if self.most else self.size
