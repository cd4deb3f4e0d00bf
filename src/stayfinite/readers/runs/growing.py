"""Read what was appended to a file since the last look.

The file may not exist yet, or be rotated, truncated, deleted and recreated, or replaced. The last bytes read are
compared, so a file that was emptied and has outgrown the old position is still detected.
"""

from __future__ import annotations

import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = 4 << 20  # bytes per look, so that one huge file does not starve the others

REMEMBERED = 64  # bytes before the current position that must be unchanged

LONGEST = 1 << 20  # incomplete lines longer than this are skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The result of one look."""

    anew: bool = False
    """The file was replaced: discard what was read before."""
    content: bytes = b""
    there: bool = True
    """Whether the file exists."""
    more: bool = False
    """Whether more can be read at once."""
    modified: float = 0.0
    """Modification time, in seconds since the epoch."""


class GrowingFile:
    """Remembers how far a file was read."""

    def __init__(self, path: Path, *, rewritten: bool = False) -> None:
        """``rewritten``: the file is always written as a whole, so any change invalidates what was read."""
        self.path = path
        self._rewritten = rewritten
        self._identity: tuple[int, int] | None = None
        self._position = 0
        self._before = b""
        self._stamp = -1

    def look(self) -> Piece:
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
        if not stat.S_ISREG(status.st_mode):  # a pipe would block
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
    """Complete lines of a growing file; an incomplete one waits for its end."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._torn = b""

    def look(self) -> tuple[Piece, list[bytes]]:
        """Return the look and the lines completed by it."""
        piece = self._file.look()
        if piece.anew:
            self._torn = b""
        if not piece.content:
            return piece, []
        *whole, torn = (self._torn + piece.content).split(b"\n")
        self._torn = torn if len(torn) <= LONGEST else b""
        return piece, whole


def number(value: Any) -> float | None:
    """A number, including NaN and infinity; None for anything else."""
    if type(value) is float:  # the common case, called millions of times
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf if value > 0 else -math.inf
