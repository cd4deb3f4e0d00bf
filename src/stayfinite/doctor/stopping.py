"""Ending a program from outside, without torch."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any


class ProgramStopped(BaseException):
    """The doctor ends the program: a bad step under ``--strict``, or its time is over. Programs catch Exceptions."""


class TimeLimit:
    """Within, the program is ended when its time is over.

    Arguments:
        minutes: how long it may run; None for as long as it likes.
        on_over: called when the time is over, before the program is ended.
    """

    def __init__(self, minutes: float | None, on_over: Callable[[], None]) -> None:
        # Without SIGALRM, as on Windows, there is no limit.
        self._seconds = 60 * minutes if minutes is not None and hasattr(signal, "SIGALRM") else None
        self._on_over = on_over
        self._before: Any = None

    def __enter__(self) -> None:
        if self._seconds is not None:
            self._before = signal.signal(signal.SIGALRM, self._over)
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: Any) -> None:
        if self._seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)

    def _over(self, *_: Any) -> None:
        self._on_over()
        raise ProgramStopped("time")
