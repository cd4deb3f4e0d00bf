"""When the next snapshot and the next checkpoint are due: the same step on every rank."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from stayfinite.core.agreeing import Agreement
from stayfinite.core.policy import Policy

LEAST_STEPS = 10
"""Between two snapshots, however cheap they are."""

FIRST_STEPS = 50
"""Between the first ones, which allocate their memory and say nothing about what later ones cost."""

ALLOCATING = 2
LOOK_EVERY = 10
"""Steps between two looks at the first rank's clock, where there are several ranks."""


class SnapshotCadence:
    """As often as the share of training time that they may cost allows."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._taken = 0
        self._due = 0
        self._wait = FIRST_STEPS
        self._last: tuple[int, float] = (0, clock())
        self._step_seconds = 0.0

    def due(self, step: int) -> bool:
        """Whether to take one now."""
        return step >= self._due

    @property
    def outdated(self) -> bool:
        """Whether the last one was of no use, so that the next may take its place."""
        return self._due == 0

    def at_once(self) -> None:
        """The last one was of no use: the next is due."""
        self._due = 0

    def took(self, step: int, cost: float) -> Agreement[None]:
        """One was taken; ``cost`` is in seconds, and the slowest rank's counts."""
        last_step, last_time = self._last
        self._taken += 1
        self._last = (step, self._clock())
        self._step_seconds = (self._last[1] - last_time) / max(step - last_step, 1)
        self._wait = yield self._affordable(cost)
        self._due = step + self._wait

    def proved(self, cost: float) -> Agreement[None]:
        """The last one has landed and was looked through: what it has cost in all is known now."""
        self._wait = max(self._wait, (yield self._affordable(cost)))
        self._due = max(self._due, self._last[0] + self._wait)

    def _affordable(self, cost: float) -> int:
        if self._taken <= ALLOCATING:
            return FIRST_STEPS
        return max(LEAST_STEPS, math.ceil(cost / self._share / max(self._step_seconds, 1e-9)))

    def put_off(self, step: int) -> None:
        """A state as of this step is already kept: the next one has time."""
        self._due = step + self._wait


class CheckpointCadence:
    """Every so many steps, or minutes by the first rank's clock, as the policy says.

    Arguments:
        policy: how often.
        first: whether this is the rank whose clock counts.
        many: whether there are others.
        clock: in seconds.
    """

    def __init__(self, policy: Policy, *, first: bool, many: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = policy.checkpoint_steps
        self._seconds = None if policy.checkpoint_minutes is None else 60 * policy.checkpoint_minutes
        self._first, self._many = first, many
        self._clock = clock
        self._last: tuple[int, float] = (0, clock())

    def due(self, step: int) -> Agreement[bool]:
        """Whether to save now."""
        last_step, last_time = self._last
        if self._steps is not None and step - last_step >= self._steps:
            return True
        if self._seconds is None or (self._many and step % LOOK_EVERY):
            return False
        return bool((yield int(self._first and self._clock() - last_time >= self._seconds)))

    def saved(self, step: int) -> None:
        """A checkpoint of this step is on its way, or was resumed from."""
        self._last = (step, self._clock())

    def in_words(self) -> str:
        """For ``guard.describe()``."""
        each = [f"{self._steps} steps"] * (self._steps is not None)
        each += [] if self._seconds is None else [f"{self._seconds / 60:g} minutes"]
        return f"every {' or '.join(each)}" if each else "when asked"
