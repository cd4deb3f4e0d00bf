"""Judging a live run by the rules, as often as their share of the time allows, and sooner where its numbers turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from stayfinite.core.series import Point
from stayfinite.diagnosis.diagnosis import Diagnosis

SHARE = 0.05
"""Of the time that judging a run may take."""

LEAST_PAUSE = 1.0
"""Seconds between two judgments, however quick they are."""

URGENT = 10.0
"""How many times its share judging may take while the numbers turn."""

RISEN = 1.5
"""By which factor a loss above its lowest may be about to diverge."""
VAIN = 8
"""Judgments without a new verdict after which numbers at such a height are usual."""


class Turn:
    """Sees at next to no cost that a run's newest numbers may be turning bad.

    A height at which several judgments found nothing new is usual from then on, so a noisy run is judged no more often.
    """

    def __init__(self) -> None:
        self._lowest = math.inf
        self._usual = 0.0
        self._vain = 0
        self._height = 0.0

    def see(self, newest: Point | None) -> None:
        """Take the newest point."""
        if newest is None or (newest.loss is None and not newest.bad):
            return
        self._height = math.inf if newest.bad or newest.loss is None else newest.loss
        if 0 < self._height < self._lowest:
            self._lowest = self._height

    @property
    def now(self) -> bool:
        """Whether a judgment may find trouble that the last one did not."""
        return self._height > RISEN * max(self._usual, self._lowest)

    def judged(self, *, new: bool) -> None:
        """A judgment was made; ``new``: it found trouble that was not there before."""
        self._vain = 0 if new else self._vain + self.now
        if self._vain >= VAIN:
            self._usual, self._vain = max(self._usual, self._height), 0


class PacedJudge:
    """Holds the last judgment, and asks for a new one when it is due and something has changed."""

    def __init__(self, judge: Callable[[], Diagnosis]) -> None:
        self._judge = judge
        self._began = -math.inf
        self._took = 0.0
        self._stale = False
        self.share = SHARE
        """Of the time; less where many runs are judged in one process."""
        self.urgent = False
        """Whether the numbers turn."""
        self.found: Diagnosis | None = None
        """The last judgment."""

    def changed(self) -> None:
        """There is something new to judge."""
        self._stale = True

    def forget(self) -> None:
        """What was judged is void."""
        self.found, self._began, self._stale, self.urgent = None, -math.inf, False, False

    def look(self, *, at_once: bool = False) -> bool:
        """Judge if it is due; returns whether there is a new judgment."""
        start = time.monotonic()
        if not self._stale or (start < self._began + self._pause and not at_once):
            return False
        self.found = self._judge()
        self._began, self._took = start, time.monotonic() - start
        self._stale = False
        return True

    @property
    def _pause(self) -> float:
        if self.urgent:
            return self._took / min(0.5, URGENT * self.share)
        return max(LEAST_PAUSE, self._took / self.share)
