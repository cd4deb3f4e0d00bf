"""A log that is still being written: read what is new, judge it by the same rules, speak once of what turns."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from stayfinite.core.finding import Finding
from stayfinite.core.series import Point
from stayfinite.core.settings import Settings
from stayfinite.diagnosis.diagnose import judge
from stayfinite.readers.logs import LogReader

SURE = 0.5
"""A live log says more with every line: what is less likely than this is kept back until it is."""

JUDGING_SHARE = 0.1
"""The share of the time that judging may take; the longer the log, the more seldom it is judged."""

BLOCK = 1 << 20


class Follower:
    """Takes a log piece by piece and tells what is newly wrong."""

    def __init__(self, source: str, settings: Settings | None = None) -> None:
        self._source = source
        self._settings = settings or Settings()
        self._reader = LogReader(source)
        self._trouble: set[str] = set()
        self._told: set[str] = set()
        self._next_judgement = 0.0

    def feed(self, piece: bytes) -> None:
        """Read a further piece, which may end within a line."""
        self._reader.feed(piece)

    def turned(self, *, at_once: bool = False) -> list[Finding]:
        """Findings that are new since the last call. Judges only when it is due, unless told to do so at once."""
        start = time.monotonic()
        if start < self._next_judgement and not at_once:
            return []
        found = judge(self._reader.series, self._settings)
        self._next_judgement = time.monotonic() + (time.monotonic() - start) / JUDGING_SHARE
        loud = [finding for finding in found.findings if finding.severity != "info"]
        # What is wrong is told at once, with its likeliest cause however unsure; a cause that becomes sure later, too.
        trouble = {word.partition(" from ")[0] for word in found.trouble} - self._trouble
        self._trouble |= trouble
        fresh = [finding for finding in loud[:1] if trouble or finding.confidence >= SURE]
        fresh = [finding for finding in fresh if finding.cause not in self._told]
        self._told.update(finding.cause for finding in fresh)
        return fresh

    def start_anew(self) -> None:
        """Forget what was read: the file was replaced or cut, and is another run's."""
        self._reader = LogReader(self._source)
        self._trouble, self._told = set(), set()
        self._next_judgement = 0.0

    @property
    def last(self) -> Point | None:
        """The newest measurement."""
        latest = None
        for run in self._reader.series[:1]:
            latest = run.last
        return latest


def new_bytes(path: Path, *, poll: float) -> Iterator[bytes | None]:
    """What is appended to a file, for ever; an empty piece where nothing is new, None at a new beginning.

    A file that shrinks or is replaced (a rotated log) is read from its beginning; one that is not there is waited for.
    """
    position = 0
    identity: tuple[int, int] | None = None
    while True:
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                if identity not in (None, (status.st_dev, status.st_ino)) or status.st_size < position:
                    position = 0
                    yield None
                identity = (status.st_dev, status.st_ino)
                file.seek(position)
                piece = file.read(BLOCK)
        except FileNotFoundError:
            piece = b""
        position += len(piece)
        yield piece
        if not piece:
            time.sleep(poll)
