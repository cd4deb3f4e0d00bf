"""Progress lines for slow work."""

from __future__ import annotations

import time
from collections.abc import Callable

from stayfinite.recipes.running.logbook import time_in_words

EVERY = 20.0
"""Seconds between lines."""


class Progress:
    """Prints progress and time left; nothing if the work is quick.

    Arguments:
        say: receives a line.
        what: the unit, such as `questions asked`.
        clock: returns seconds.
    """

    def __init__(self, say: Callable[[str], None], what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._what, self._clock = say, what, clock
        self._began = self._printed = clock()

    def __call__(self, done: int, of: int) -> None:
        now = self._clock()
        if done < of and now - self._printed >= EVERY:
            self._printed = now
            left = (now - self._began) / done * (of - done)
            self._say(f"  {done:,} of {of:,} {self._what}, {time_in_words(left)} left")
