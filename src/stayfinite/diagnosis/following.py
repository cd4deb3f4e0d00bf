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
from stayfinite.diagnosis.judging import PacedJudge, Turn
from stayfinite.diagnosis.onset import onset_of
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
        self.began: int | None = None
        """The step at which the trouble began, where the log says."""
        self.trouble: list[str] = []
        """What is wrong with the numbers."""
        self._judge = self._paced()
        self._turn = Turn()

    def feed(self, piece: bytes) -> None:
        """Read a further piece, which may end within a line."""
        self._reader.feed(piece)

    def turned(self, *, at_once: bool = False) -> list[Finding]:
        """Findings that are new since the last call. Judges only when it is due, unless told to do so at once."""
        self._turn.see(self.last)
        self._judge.urgent = self._turn.now
        self._judge.changed()
        if not self._judge.look(at_once=at_once) or (found := self._judge.found) is None:
            return []
        loud = [finding for finding in found.findings if finding.severity != "info"]
        # What is wrong is told at once, with its likeliest cause however unsure; a cause that becomes sure later, too.
        trouble = {word.partition(" from ")[0] for word in found.trouble} - self._trouble
        self._trouble |= trouble
        self.trouble = list(found.trouble)
        dates = (onset_of(word.partition(" from ")[0], word, self._reader.series) for word in found.trouble)
        self.began = min((step for step in dates if step is not None), default=None)
        self._turn.judged(new=bool(trouble))
        fresh = [finding for finding in loud[:1] if trouble or finding.confidence >= SURE]
        fresh = [finding for finding in fresh if finding.cause not in self._told]
        self._told.update(finding.cause for finding in fresh)
        return fresh

    def start_anew(self) -> None:
        """Forget what was read: the file was replaced or cut, and is another run's."""
        self._reader = LogReader(self._source)
        self._trouble, self._told, self.trouble = set(), set(), []
        self._judge, self._turn = self._paced(), Turn()

    def _paced(self) -> PacedJudge:
        judge_now = PacedJudge(lambda: judge(self._reader.series, self._settings))
        judge_now.share = JUDGING_SHARE
        return judge_now

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
