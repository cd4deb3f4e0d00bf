"""Decide when the next snapshot and checkpoint are due, at the same step on every rank."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from stayfinite.core.agreeing import Agreement
from stayfinite.core.policy import Policy

LEAST_STEPS = 10
"""Minimum steps between snapshots, however cheap they are."""

FIRST_STEPS = 50
"""Steps between the first snapshots: these allocate memory, so their cost does not predict later ones."""

ALLOCATING = 2
LOOK_EVERY = 10
"""Steps between checks of rank 0's clock when there are several ranks."""


class SnapshotCadence:
    """Take snapshots as often as their share of the training time allows."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._taken = 0
        self._due = 0
        self._wait = FIRST_STEPS
        self._last: tuple[int, float] = (0, clock())
        self._step_seconds = 0.0

    def due(self, step: int) -> bool:
        return step >= self._due

    @property
    def outdated(self) -> bool:
        """Whether the last snapshot is useless, so the next one may replace it."""
        return self._due == 0

    def at_once(self) -> None:
        """Discard the last snapshot: the next one is due now."""
        self._due = 0

    def took(self, step: int, cost: float) -> Agreement[None]:
        """Record a snapshot; ``cost`` is in seconds, and the slowest rank counts."""
        last_step, last_time = self._last
        self._taken += 1
        self._last = (step, self._clock())
        self._step_seconds = (self._last[1] - last_time) / max(step - last_step, 1)
        self._wait = yield self._affordable(cost)
        self._due = step + self._wait

    def proved(self, cost: float) -> Agreement[None]:
        """Record the full cost of the last snapshot, now that it was copied and checked."""
        self._wait = max(self._wait, (yield self._affordable(cost)))
        self._due = max(self._due, self._last[0] + self._wait)

    def _affordable(self, cost: float) -> int:
        if self._taken <= ALLOCATING:
            return FIRST_STEPS
        return max(LEAST_STEPS, math.ceil(cost / self._share / max(self._step_seconds, 1e-9)))

    def put_off(self, step: int) -> None:
        """Postpone the next snapshot: a state of this step is already kept."""
        self._due = step + self._wait


class CheckpointCadence:
    """Save every n steps or minutes (rank 0's clock), as the policy says.

    Arguments:
        first: whether this is rank 0.
        many: whether there are other ranks.
        clock: returns seconds.
    """

    def __init__(self, policy: Policy, *, first: bool, many: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = policy.checkpoint_steps
        self._seconds = None if policy.checkpoint_minutes is None else 60 * policy.checkpoint_minutes
        self._first, self._many = first, many
        self._clock = clock
        self._last: tuple[int, float] = (0, clock())

    def due(self, step: int) -> Agreement[bool]:
        last_step, last_time = self._last
        if self._steps is not None and step - last_step >= self._steps:
            return True
        if self._seconds is None or (self._many and step % LOOK_EVERY):
            return False
        return bool((yield int(self._first and self._clock() - last_time >= self._seconds)))

    def saved(self, step: int) -> None:
        """Record that a checkpoint of this step was started or resumed from."""
        self._last = (step, self._clock())

    def in_words(self) -> str:
        """Return the interval for ``guard.describe()``."""
        each = [f"{self._steps} steps"] * (self._steps is not None)
        each += [] if self._seconds is None else [f"{self._seconds / 60:g} minutes"]
        return f"every {' or '.join(each)}" if each else "when asked"
