"""What goes wrong in one schedule, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Fault(StrEnum):
    """What happens to one rank."""

    NAN = "nan"
    """Its loss is NaN, for as many steps as `size` says."""

    POISON = "poison"
    """Its weights become NaN after the step, until it goes back."""

    NO_MEMORY = "no-memory"
    """It cannot copy its state, for `size` steps."""

    SLOW_DISK = "slow-disk"
    """Its share of a checkpoint takes `size` seconds longer."""

    FULL_DISK = "full-disk"
    """Its share of a checkpoint cannot be written."""

    SILENT_DISK = "silent-disk"
    """Its report is never seen by others."""

    LATE = "late"
    """It comes `size` seconds late, working all the time."""

    HANG = "hang"
    """It never comes."""

    CRASH_BEFORE = "crash-before"
    """It dies before it sends its numbers."""

    CRASH_WITHIN = "crash-within"
    """It dies in the all-reduce: some ranks have the sum, the others an error."""

    CRASH_AFTER = "crash-after"
    """It dies when the step is decided; a checkpoint may be half written."""

    DAMAGED = "damaged"
    """The newest checkpoint is damaged on disk; the machine crashes too."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault; it happens once, however often its step comes back after a restart."""

    fault: Fault
    rank: int
    step: int
    size: float


WEIGHTS = {
    Fault.NAN: 5, Fault.POISON: 3, Fault.NO_MEMORY: 2, Fault.SLOW_DISK: 3, Fault.FULL_DISK: 2, Fault.SILENT_DISK: 1,
    Fault.LATE: 2, Fault.HANG: 1, Fault.CRASH_BEFORE: 2, Fault.CRASH_WITHIN: 3, Fault.CRASH_AFTER: 3, Fault.DAMAGED: 1,
}  # fmt: skip


def draw(rng: np.random.Generator, ranks: int, steps: int) -> list[Planned]:
    """The faults of one schedule: one to five, a third of them on the first rank, which has duties of its own."""
    kinds = list(WEIGHTS)
    odds = np.array([WEIGHTS[kind] for kind in kinds], dtype=float)
    found = []
    for _ in range(int(rng.integers(1, 6))):
        fault = kinds[int(rng.choice(len(kinds), p=odds / odds.sum()))]
        rank = 0 if rng.random() < 1 / 3 else int(rng.integers(1, ranks))
        size = {
            Fault.NAN: float(rng.choice([1, 1, 2, 4, 30])),
            Fault.NO_MEMORY: float(rng.integers(1, 4)),
            Fault.SLOW_DISK: float(rng.choice([5.0, 60.0, 599.0, 700.0])),
            Fault.LATE: float(rng.choice([5.0, 100.0, 250.0, 500.0])),
        }.get(fault, 1.0)
        found.append(Planned(fault, rank, int(rng.integers(1, steps + 1)), size))
    return found
