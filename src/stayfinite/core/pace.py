"""How fast a run goes, and when it will be done: from steps and the moments at which they were met."""

from __future__ import annotations

from collections import deque

WINDOW = 60.0
"""Seconds over which the rate is taken: evaluations and checkpoints are part of a run's pace."""

ENOUGH = 3.0
"""Seconds of looking on before that is believed rather than the average since the start."""


class Pace:
    """Takes the newest step now and then."""

    def __init__(self) -> None:
        self._met: deque[tuple[float, int]] = deque()
        self._begun: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None

    def begin(self, moment: float, step: int) -> None:
        """The run was launched, or launched again, at this moment and step."""
        self._begun = (moment, step)
        self._met.clear()

    def note(self, moment: float, step: int) -> None:
        """The newest step at this moment."""
        if self._last is not None and step < self._last[1]:
            self._met.clear()  # it has gone back
            self._begun = None if self._begun is not None and self._begun[1] > step else self._begun
        self._last = (moment, step)
        self._met.append((moment, step))
        while len(self._met) > 2 and moment - self._met[0][0] > WINDOW:
            self._met.popleft()

    @property
    def rate(self) -> float | None:
        """Steps a second; None where nothing is known yet."""
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
        """Seconds to the last step."""
        rate = self.rate
        if rate is None or step is None or total is None:
            return None
        return max(0.0, (total - step) / rate)
