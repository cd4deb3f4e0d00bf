"""Stop a program from outside, without torch."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any


class ProgramStopped(BaseException):
    """Ends the program: a bad step under ``--strict``, or the time limit. A BaseException, since programs catch
    Exception.
    """


class TimeLimit:
    """Stops the program when its time is up.

    Arguments:
        minutes: time limit; None for none.
        on_over: called first when the time is up.
    """

    def __init__(self, minutes: float | None, on_over: Callable[[], None]) -> None:
        # No limit without SIGALRM, as on Windows.
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
