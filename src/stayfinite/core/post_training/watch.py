"""Detect failing reinforcement or preference training while its loss is finite.

Each signal is compared with its own start and its meaning: KL and entropy are nats per token, the ratio of new to old
probability is 1 on average, shares are at most 1, and sampler and trainer give a token the same log-probability. No
sign refuses a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stayfinite.core.post_training.course import EARLY, LATE, LONG, Course
from stayfinite.core.post_training.judging import TESTS
from stayfinite.core.post_training.signs import Sign


class PostTraining:
    """Follow the signals of a run; report each cause once, and again after it was absent for a while."""

    def __init__(self, early: int = EARLY, late: int = LATE) -> None:
        """``early`` and ``late``: values per level; a log whose few lines are means over steps needs fewer."""
        self._early, self._late = early, late
        self._courses: dict[str, Course] = {}
        self._taken = 0
        self._shown: dict[str, int] = {}
        """Causes, and when each was last seen."""
        self.standing: frozenset[str] = frozenset()
        """Causes that the signals show now, reported or not."""

    def take(self, step: int, signals: Mapping[str, float]) -> list[Sign]:
        """Judge the signals of one step, by name; non-finite values are skipped.

        Returns:
            The signs that are new at this step.
        """
        self._taken += 1
        for name, value in signals.items():
            if math.isfinite(value):
                if name not in self._courses:
                    self._courses[name] = Course(self._early, self._late)
                self._courses[name].take(float(value))
        new, standing = [], set()
        for test in TESTS:
            for sign in test(step, self._courses):
                standing.add(sign.cause)
                last = self._shown.get(sign.cause)
                if last is None or self._taken - last > LONG * self._late:
                    new.append(sign)
                self._shown[sign.cause] = self._taken
        self.standing = frozenset(standing)
        return new

    def to_json(self) -> dict[str, Any]:
        """State of bounded size, as plain data."""
        return {
            "taken": self._taken,
            "shown": dict(self._shown),
            "standing": sorted(self.standing),
            "courses": {name: course.to_json() for name, course in self._courses.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`to_json` wrote; an empty state starts over.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: not such a state; nothing was changed.
        """
        courses = {
            name: Course.from_json(each, self._early, self._late) for name, each in state.get("courses", {}).items()
        }
        shown = {str(cause): int(taken) for cause, taken in state.get("shown", {}).items()}
        self._taken, self.standing = int(state.get("taken", 0)), frozenset(state.get("standing", ()))
        self._courses, self._shown = courses, shown
