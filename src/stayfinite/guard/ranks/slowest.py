"""Find the rank that others wait for in healthy steps.

A rank's own time is from the end of a step to its backward pass: batch, forward pass, and the loop's other work. The
others wait in the next collective for the rank that takes longest. It is host time: on an accelerator it shows slow
data and a slow host, not a slow device.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from stayfinite.core.stalls import Phase
from stayfinite.guard.ranks.ranks import Ranks

EVERY = 100
"""Steps per average."""

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowest:
    """The rank with the most own time over the last steps."""

    rank: int
    share: float
    """Its own share of the step time."""

    mean_share: float
    """Mean share over all ranks."""

    step_seconds: float


class OwnTime:
    """Measures a rank's own time, and finds the slowest rank every ``EVERY`` steps."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._begun: float | None = None
        self._left: float | None = None
        self._own = 0.0
        self._steps = 0

    def at(self, phase: Phase) -> None:
        """Record that the training reached this phase."""
        if phase is Phase.BACKWARD and self._left is not None:
            self._own += time.perf_counter() - self._left
            self._left = None
        elif phase is Phase.OUTSIDE:
            self._left = time.perf_counter()
            self._begun = self._begun or self._left

    def look(self, step: int) -> Slowest | None:
        """The slowest rank, every ``EVERY`` steps, else None. A collective then."""
        self._steps += 1
        if step % EVERY:
            return None
        now = time.perf_counter()
        steps, begun = self._steps, self._begun
        own, self._own, self._steps, self._begun = self._own, 0.0, 0, now
        if begun is None or steps < EVERY:
            return None  # the same on all ranks: they start at the same step
        micros = int(MICROSECONDS * own / steps)
        highest = self._ranks.highest(micros * self._ranks.world + self._ranks.rank)
        mean_own, period = self._ranks.mean([own / steps, (now - begun) / steps])
        slowest, rank = divmod(highest, self._ranks.world)
        period = max(period, 1e-9)
        return Slowest(
            rank=rank,
            share=min(1.0, slowest / MICROSECONDS / period),
            mean_share=min(1.0, mean_own / period),
            step_seconds=period,
        )
