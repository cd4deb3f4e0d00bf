"""One signal over a run: its beginning, its level now, its best, and its noise."""

from __future__ import annotations

import math
from statistics import median

EARLY, LATE, LONG = 8, 5, 4
"""Values at the beginning that are the measure, newest ones whose median is judged, how many times these are long."""


class Course:
    """One signal over a run, in bounded memory: its beginning, its newest values, its best level and its noise."""

    def __init__(self, early: int = EARLY, late: int = LATE) -> None:
        self._early, self._late = early, late
        self._first: list[float] = []
        self._newest: list[float] = []
        self._moved = 0.0
        self.count = 0
        self.early = self.late = self.before = self.late_long = math.nan
        """The level at the beginning, now, just before the newest values, and over four times as many of them."""
        self.early_mean = math.nan
        self.best = self.best_long = -math.inf
        """Highest level so far, and highest of the long ones."""
        self.lowest, self.highest = math.inf, -math.inf

    def take(self, value: float) -> None:
        """Add the next value; it is finite."""
        if self._newest:
            self._moved += abs(value - self._newest[-1])
        if len(self._first) < self._early:
            self._first.append(value)
            self.early, self.early_mean = median(self._first), sum(self._first) / len(self._first)
        newest = self._newest = [*self._newest, value][-LONG * self._late :]
        self.count += 1
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        self.late = median(newest[-self._late :])
        self.before = median(newest[-2 * self._late : -self._late] or newest)
        self.late_long = sum(newest) / len(newest)
        if self.count >= self._late:
            self.best = max(self.best, self.late)
        if self.count >= LONG * self._late:
            self.best_long = max(self.best_long, self.late_long)

    @property
    def judged(self) -> bool:
        """Whether beginning and newest values do not overlap."""
        return self.count >= self._early + self._late

    @property
    def sustained(self) -> bool:
        """Whether there are as many values as one level needs."""
        return self.count >= self._late

    def only(self, value: float) -> bool:
        """Whether the values of a long level, or all since the start, are this one."""
        return all(abs(each - value) <= 1e-9 for each in self._newest)

    @property
    def long(self) -> bool:
        """Whether there are as many values as a long level needs."""
        return self.count >= LONG * self._late

    @property
    def noise(self) -> float:
        """Standard deviation of single values, from neighbor to neighbor: a slow drift is no noise."""
        return 0.886 * self._moved / max(1, self.count - 1)

    def rose(self, by: float) -> bool:
        """Whether the level is so many deviations above that of the beginning."""
        return self.judged and self.late > self.early and self.late - self.early >= by * self.noise

    def fell(self, by: float) -> bool:
        """Whether the level is so many deviations below that of the beginning."""
        return self.judged and self.late < self.early and self.early - self.late >= by * self.noise
