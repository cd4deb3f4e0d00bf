"""Compare re-runs of a step: the step was right, a device erred, or its kernels are nondeterministic.

A fingerprint is the bits of a step's losses and of each gradient, as sums. Re-runs with the same weights, batches and
random numbers have the same fingerprint, except for kernels that add in varying order. The first steps show which those
are; they are not compared later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

CALIBRATING = 3
"""First steps to run again, to find what is deterministic."""

CALIBRATING_RERUNS = 2
"""Re-runs of each of these."""

RERUNS = 3
"""Total re-runs of a step after the first one differed."""

ALERT = 8
"""After a mismatch, run every step again until this many in a row agree."""

Kind = Literal["transient", "persistent"]


@dataclass(frozen=True, slots=True)
class Print:
    """Fingerprint of one run of a step."""

    losses: tuple[int, ...]
    """Bits of the loss of each pass."""
    gradients: tuple[int, ...]
    """Bits of each parameter's gradient, in roster order; 0 for none."""
    value: float
    """Sum of the losses, for people."""


@dataclass(slots=True)
class Comparable:
    """What is compared on this rank."""

    loss: bool = True
    unsteady: set[int] = field(default_factory=set)
    """Parameters with nondeterministic gradients."""

    def differing(self, first: Print, second: Print) -> tuple[bool, tuple[int, ...]]:
        """Whether the losses differ, and the parameters whose gradients differ."""
        if not self.loss:
            return False, ()
        pairs = zip(first.gradients, second.gradients, strict=True)
        places = tuple(place for place, (a, b) in enumerate(pairs) if a != b and place not in self.unsteady)
        return first.losses != second.losses, places

    def agree(self, first: Print, second: Print) -> bool:
        """Whether two runs agree in everything that is compared."""
        return self.differing(first, second) == (False, ())

    def leave_out(self, first: Print, second: Print) -> None:
        """Exclude what differs between these runs: their kernels are nondeterministic."""
        loss, places = self.differing(first, second)
        if loss:
            self.loss = False
        self.unsteady.update(places)

    def compared(self, parameters: int) -> int:
        """Number of parameters whose gradients are compared."""
        return parameters - len(self.unsteady) if self.loss else 0


def kind_of(runs: Sequence[Print], comparable: Comparable) -> Kind:
    """Whether one run of a step was off, or the device keeps giving different results."""
    seen = Counter(
        (run.losses, tuple(bits for place, bits in enumerate(run.gradients) if place not in comparable.unsteady))
        for run in runs
    )
    return "transient" if max(seen.values()) >= len(runs) - 1 else "persistent"


@dataclass(slots=True)
class Rhythm:
    """Which steps are run again; the same on every rank.

    Arguments:
        every: steps between re-runs; 0 for none.
    """

    every: int
    done: int = 0
    """Steps that were due so far."""
    alert: int = 0
    """Steps still to run again after a mismatch."""

    @property
    def calibrating(self) -> bool:
        """Whether the first steps still show what is deterministic."""
        return self.done < CALIBRATING

    def due(self, step: int) -> bool:
        return bool(self.every) and (self.calibrating or self.alert > 0 or step % self.every == 0)

    def passed(self, *, run: bool, mismatch: bool) -> None:
        """Record a step that was due; ``run`` is whether every rank ran it again."""
        self.done += run
        self.alert = ALERT if mismatch else max(0, self.alert - 1)

    def stop(self) -> None:
        self.every = 0


def is_nature(differing: int, ranks: int) -> bool:
    """Whether the code is the cause: too many ranks differ at once for a device fault."""
    return differing > max(1, ranks // 2)
