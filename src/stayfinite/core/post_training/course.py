"""Running statistics of one signal: its first level, current level, best level and noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

EARLY, LATE, LONG = 8, 5, 4
"""First values (the reference), newest values (their median is judged), and the factor of a long level."""

OUTLYING = 4.0
"""Moves are capped at this multiple of the usual move."""

BY_CHANCE = 4.0
"""Divided by the root of the count: how far above 1 the memory of a random walk comes out by chance (two deviations).
"""

LONGEST = 0.97
"""Memory above which a drift cannot be distinguished from a wandering signal."""

KEPT = (
    "_first",
    "_newest",
    "count",
    "_moved",
    "_move",
    "_squares",
    "_products",
    "best",
    "best_long",
    "lowest",
    "highest",
)
"""Saved attributes; the rest is derived from them."""


class Course:
    """One signal over a run, in bounded memory."""

    def __init__(self, early: int = EARLY, late: int = LATE) -> None:
        self._early, self._late = early, late
        self._first: list[float] = []
        self._newest: list[float] = []
        self._moved = 0.0
        self._move = 0.0
        self._squares = self._products = 0.0
        self.count = 0
        self.early = self.late = self.before = self.late_long = math.nan
        """Level at the start, now, just before now, and over ``LONG`` times as many values."""
        self.usual = math.nan
        """Median over the long window; single outliers do not move it."""
        self.early_mean = math.nan
        self.best = self.best_long = -math.inf
        """Highest short and long level so far."""
        self.lowest, self.highest = math.inf, -math.inf

    def take(self, value: float) -> None:
        """Add the next, finite value."""
        if self._newest:
            self._follow(value - self._newest[-1])
        if len(self._first) < self._early:
            self._first.append(value)
        self._newest = [*self._newest, value][-LONG * self._late :]
        self.count += 1
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        self._settle()
        if self.count >= self._late:
            self.best = max(self.best, self.late)
        if self.count >= LONG * self._late:
            self.best_long = max(self.best_long, self.late_long)

    def _settle(self) -> None:
        first, newest = self._first, self._newest
        self.early, self.early_mean = median(first), sum(first) / len(first)
        self.late = median(newest[-self._late :])
        self.before = median(newest[-2 * self._late : -self._late] or newest)
        self.late_long, self.usual = sum(newest) / len(newest), median(newest)

    def to_json(self) -> dict[str, Any]:
        """Plain data; levels that do not exist yet are omitted."""
        return {
            name: kept for name in KEPT if not isinstance(kept := getattr(self, name), float) or math.isfinite(kept)
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any], early: int = EARLY, late: int = LATE) -> Course:
        """Rebuild what :meth:`to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: not a course.
        """
        course = cls(early, late)
        course._first, course._newest = ([float(each) for each in state[name]] for name in ("_first", "_newest"))
        course.count = int(state["count"])
        for name in KEPT[3:]:
            setattr(course, name, float(state.get(name, getattr(course, name))))
        course._settle()
        return course

    def _follow(self, move: float) -> None:
        self._moved += abs(move)
        # A single jump must not look like a trend.
        bound = OUTLYING * self._moved / self.count
        held = min(max(move, -bound), bound)
        self._squares += held * held
        self._products += held * self._move
        self._move = held

    @property
    def judged(self) -> bool:
        """Whether the first and the newest values do not overlap."""
        return self.count >= self._early + self._late

    @property
    def sustained(self) -> bool:
        """Whether there are enough values for a level."""
        return self.count >= self._late

    def only(self, value: float) -> bool:
        """Whether all values in the long window equal this one."""
        return all(abs(each - value) <= 1e-9 for each in self._newest)

    def ends_in(self, value: float) -> bool:
        """Whether the newest values, three levels long, equal this one, or all of a long window do."""
        end = self._newest[-3 * self._late :]
        return len(end) >= 3 * self._late and all(abs(each - value) <= 1e-9 for each in end)

    @property
    def long(self) -> bool:
        """Whether there are enough values for a long level."""
        return self.count >= LONG * self._late

    @property
    def noise(self) -> float:
        """Standard deviation of single values, from successive differences, so a slow drift does not count."""
        return 0.886 * self._moved / max(1, self.count - 1)

    @property
    def memory(self) -> float:
        """Autocorrelation: 0 for white noise, near 1 for a wandering signal.

        Estimated from successive moves, so a slow drift does not count: in white noise each move reverts half of the
        last one, in a random walk none of it. Moves that keep their direction beyond chance are a trend, and give 0.
        """
        if self._squares == 0:
            return 0.0
        kept = 1 + 2 * self._products / self._squares
        return 0.0 if kept > 1 + BY_CHANCE / math.sqrt(self.count) else min(max(0.0, kept), LONGEST)

    def spread(self, values: int) -> float:
        """Standard deviation of the mean of n values, including how far the signal wanders."""
        kept = self.memory
        return self.noise * math.sqrt(min(1.0, (1 + kept) / (1 - kept) / values) / (1 - kept))

    def rose(self, by: float) -> bool:
        """Whether the level is at least ``by`` deviations above the first level."""
        return self.judged and self.late > self.early and self.late - self.early >= by * self.noise

    def fell(self, by: float) -> bool:
        """Whether the level is at least ``by`` deviations below the first level."""
        return self.judged and self.late < self.early and self.early - self.late >= by * self.noise
