"""Speed and remaining time of a run, from steps and the times they were seen."""

from __future__ import annotations

from collections import deque

WINDOW = 60.0
"""Seconds over which the rate is measured; includes evaluations and checkpoints."""

ENOUGH = 3.0
"""Seconds of observation before the window is used instead of the average since the start."""


class Pace:
    """Rate and remaining time from occasional observations of the newest step."""

    def __init__(self) -> None:
        self._met: deque[tuple[float, int]] = deque()
        self._begun: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None

    def begin(self, moment: float, step: int) -> None:
        """Record that the run started or resumed at this time and step."""
        self._begun = (moment, step)
        self._met.clear()

    def note(self, moment: float, step: int) -> None:
        """Record the newest step at this time."""
        if self._last is not None and step < self._last[1]:
            self._met.clear()  # the run went back
            self._begun = None if self._begun is not None and self._begun[1] > step else self._begun
        self._last = (moment, step)
        self._met.append((moment, step))
        while len(self._met) > 2 and moment - self._met[0][0] > WINDOW:
            self._met.popleft()

    @property
    def rate(self) -> float | None:
        """Steps per second; None if not known yet."""
        if self._met and self._last is not None:
            moment, step = self._met[0]
            if self._last[0] - moment >= ENOUGH and self._last[1] > step:
                return (self._last[1] - step) / (self._last[0] - moment)
        if self._begun is not None and self._last is not None:
            seconds, steps = self._last[0] - self._begun[0], self._last[1] - self._begun[1]
            if seconds > 0 and steps > 0:
                return steps / seconds
        return None

    def remaining(self, step: int | None, total: int | None) -> float | None:
        """Seconds to the last step; None if not known."""
        rate = self.rate
        if rate is None or step is None or total is None:
            return None
        return max(0.0, (total - step) / rate)
