"""Files that others append to: what is new in them, whole lines only, and whether they were begun anew."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 4 << 20
"""Bytes that are read at a time."""

LONGEST = 1 << 20
"""A line without an end in so many bytes is none of ours and is passed over."""


class GrowingFile:
    """A file of lines, read from where the last reading ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None
        self._position = 0
        self._rest = b""

    def begun_anew(self) -> bool:
        """Whether the file was replaced, cut or deleted since; it is then read from its beginning."""
        try:
            status = self.path.stat()
        except OSError:
            gone = self._identity is not None
            self._forget()
            return gone
        identity = (status.st_dev, status.st_ino)
        if self._identity in (None, identity) and status.st_size >= self._position:
            return False
        self._forget()
        return True

    def new_objects(self) -> Iterator[dict[str, Any]]:
        """The JSON objects of the lines that are new; a line that is none is passed over."""
        try:
            file = self.path.open("rb")
        except OSError:
            return
        with file:
            status = os.fstat(file.fileno())
            self._identity = (status.st_dev, status.st_ino)
            file.seek(self._position)
            while piece := file.read(BLOCK):
                self._position += len(piece)
                *lines, self._rest = (self._rest + piece).split(b"\n")
                if len(self._rest) > LONGEST:
                    self._rest = b""
                for line in lines:
                    record = _object(line)
                    if record is not None:
                        yield record

    def _forget(self) -> None:
        self._identity, self._position, self._rest = None, 0, b""


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def number(value: Any) -> float | None:
    """A number as it stands, NaN and infinity among them; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf if value > 0 else -math.inf
