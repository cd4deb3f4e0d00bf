"""One signal over a run: its beginning, its level now, its best, and its noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

EARLY, LATE, LONG = 8, 5, 4
"""Values at the beginning that are the measure, newest ones whose median is judged, how many times these are long."""

OUTLYING = 4.0
"""How many times the usual a move may be and count in full."""

BY_CHANCE = 4.0
"""Over the root of the count: how far above 1 the memory of a walk comes out, at two deviations."""

LONGEST = 0.97
"""Memory beyond which a drift and a wandering signal cannot be told apart."""

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
"""What a course is made of, and is saved; the rest follows from it."""


class Course:
    """One signal over a run, in bounded memory: its beginning, its newest values, its best level and its noise."""

    def __init__(self, early: int = EARLY, late: int = LATE) -> None:
        self._early, self._late = early, late
        self._first: list[float] = []
        self._newest: list[float] = []
        self._moved = 0.0
        self._move = 0.0
        self._squares = self._products = 0.0
        self.count = 0
        self.early = self.late = self.before = self.late_long = math.nan
        """The level at the beginning, now, just before the newest values, and over four times as many of them."""
        self.usual = math.nan
        """The median over four times as many: what single batches far out do not reach."""
        self.early_mean = math.nan
        self.best = self.best_long = -math.inf
        """Highest level so far, and highest of the long ones."""
        self.lowest, self.highest = math.inf, -math.inf

    def take(self, value: float) -> None:
        """Add the next value; it is finite."""
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
        """As plain data; a level that there is none of yet is left out."""
        return {
            name: kept for name in KEPT if not isinstance(kept := getattr(self, name), float) or math.isfinite(kept)
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any], early: int = EARLY, late: int = LATE) -> Course:
        """What :meth:`to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
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
        # One jump must not look like a habit.
        bound = OUTLYING * self._moved / self.count
        held = min(max(move, -bound), bound)
        self._squares += held * held
        self._products += held * self._move
        self._move = held

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

    @property
    def memory(self) -> float:
        """How much of a deviation is left one value later: 0 for plain noise, near 1 for a signal that wanders.

        From neighboring moves, so that a slow drift does not count: in plain noise each takes half of the last one
        back, in a walk none of it. Moves that go on in their direction, beyond chance, are a trend: no signal wanders
        like that.
        """
        if self._squares == 0:
            return 0.0
        kept = 1 + 2 * self._products / self._squares
        return 0.0 if kept > 1 + BY_CHANCE / math.sqrt(self.count) else min(max(0.0, kept), LONGEST)

    def spread(self, values: int) -> float:
        """Standard deviation of the mean of so many values, given how far the signal wanders by itself."""
        kept = self.memory
        return self.noise * math.sqrt(min(1.0, (1 + kept) / (1 - kept) / values) / (1 - kept))

    def rose(self, by: float) -> bool:
        """Whether the level is so many deviations above that of the beginning."""
        return self.judged and self.late > self.early and self.late - self.early >= by * self.noise

    def fell(self, by: float) -> bool:
        """Whether the level is so many deviations below that of the beginning."""
        return self.judged and self.late < self.early and self.early - self.late >= by * self.noise
