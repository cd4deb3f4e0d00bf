"""Judging a live run by the rules, as often as their share of the time allows."""

from __future__ import annotations

import time
from collections.abc import Callable

from stayfinite.diagnosis.diagnosis import Diagnosis

SHARE = 0.05
"""Of the time that judging a run may take."""

LEAST_PAUSE = 1.0
"""Seconds between two judgments, however quick they are."""


class PacedJudge:
    """Holds the last judgment, and asks for a new one when it is due and something has changed."""

    def __init__(self, judge: Callable[[], Diagnosis]) -> None:
        self._judge = judge
        self._due = 0.0
        self._stale = False
        self.share = SHARE
        """Of the time; less where many runs are judged in one process."""
        self.found: Diagnosis | None = None
        """The last judgment."""

    def changed(self) -> None:
        """There is something new to judge."""
        self._stale = True

    def forget(self) -> None:
        """What was judged is void."""
        self.found, self._due, self._stale = None, 0.0, False

    def look(self, *, at_once: bool = False) -> bool:
        """Judge if it is due; returns whether there is a new judgment."""
        start = time.monotonic()
        if not self._stale or (start < self._due and not at_once):
            return False
        self.found = self._judge()
        took = time.monotonic() - start
        self._due = start + max(LEAST_PAUSE, took / self.share)
        self._stale = False
        return True
