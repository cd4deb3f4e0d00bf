"""A file that grows: what was appended since the last look, whatever happens to the file in between.

It may not exist yet, be rotated, cut off, deleted and come back, or be replaced by another one. The last bytes that
were read are remembered and compared: a file that was emptied and has grown past the old place is still told apart.
"""

from __future__ import annotations

import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = 4 << 20
"""Bytes read at one look, so that a huge file is taken in pieces and others get their turn."""

REMEMBERED = 64
"""Bytes before the place read up to that must still be there."""

LONGEST = 1 << 20
"""A line without an end of more bytes than this is passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one look brought."""

    anew: bool = False
    """The file is another one than before: what was read of it is void."""
    content: bytes = b""
    there: bool = True
    """Whether there is such a file now."""
    more: bool = False
    """Whether there is more to read at once."""
    modified: float = 0.0
    """When it was written to last, seconds since the epoch."""


class GrowingFile:
    """Remembers how far a file was read."""

    def __init__(self, path: Path, *, rewritten: bool = False) -> None:
        """``rewritten``: it is always written as a whole, and void whenever it is another file or was written to."""
        self.path = path
        self._rewritten = rewritten
        self._identity: tuple[int, int] | None = None
        self._position = 0
        self._before = b""
        self._stamp = -1

    def look(self) -> Piece:
        """Read on."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            return Piece(there=False)
        try:
            return self._read(descriptor)
        except OSError:
            return Piece(there=False)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> Piece:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):  # a pipe would make everybody wait
            return Piece(there=False)
        modified = status.st_mtime
        unchanged = status.st_mtime_ns == self._stamp and status.st_size == self._position
        identity = (status.st_dev, status.st_ino)
        if unchanged and identity == self._identity:
            return Piece(modified=modified)
        anew = self._identity is not None and not self._goes_on(descriptor, status)
        if anew:
            self._position, self._before = 0, b""
        self._identity, self._stamp = identity, status.st_mtime_ns
        content = os.pread(descriptor, BLOCK, self._position)
        self._position += len(content)
        self._before = (self._before + content[-REMEMBERED:])[-REMEMBERED:]
        return Piece(anew=anew, content=content, more=self._position < status.st_size, modified=modified)

    def _goes_on(self, descriptor: int, status: os.stat_result) -> bool:
        identity = (status.st_dev, status.st_ino)
        if self._rewritten and (status.st_mtime_ns != self._stamp or identity != self._identity):
            return False
        if status.st_size < self._position:
            return False
        if not self._position:
            return True
        return os.pread(descriptor, len(self._before), self._position - len(self._before)) == self._before


class GrowingLines:
    """The whole lines of a growing file; one without an end waits for it."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._torn = b""

    def look(self) -> tuple[Piece, list[bytes]]:
        """What the look brought, and the lines that are whole now."""
        piece = self._file.look()
        if piece.anew:
            self._torn = b""
        if not piece.content:
            return piece, []
        *whole, torn = (self._torn + piece.content).split(b"\n")
        self._torn = torn if len(torn) <= LONGEST else b""
        return piece, whole


def number(value: Any) -> float | None:
    """A number as it stands, NaN and infinity among them; None for anything else."""
    if type(value) is float:  # nearly always, and asked millions of times
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf if value > 0 else -math.inf
