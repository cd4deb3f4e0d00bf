"""What re-runs of a step say: that it was right, that a device erred, or that its kernels never repeat themselves.

A step's print is the bits of its losses and of each of its gradients, as sums. Re-runs with the same weights, batches
and random numbers have the same print, unless a kernel adds in another order each time; that is found out on the first
few steps, and what does not repeat itself there is not compared later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

CALIBRATING = 3
"""The first steps that are run again, to learn what repeats itself."""

CALIBRATING_RERUNS = 2
"""How often each of them is."""

RERUNS = 3
"""How often a step is run again in all, once the first re-run has differed."""

ALERT = 8
"""After a mismatch every step is run again until so many in a row have agreed."""

Kind = Literal["transient", "persistent"]


@dataclass(frozen=True, slots=True)
class Print:
    """What one run of a step has come to."""

    losses: tuple[int, ...]
    """Bits of the loss of each pass."""
    gradients: tuple[int, ...]
    """Bits of each parameter's gradients, in the roster's order; 0 where there is none."""
    value: float
    """The losses together, for people."""


@dataclass(slots=True)
class Comparable:
    """What of a step is compared on this rank."""

    loss: bool = True
    unsteady: set[int] = field(default_factory=set)
    """Parameters whose gradients do not repeat themselves."""

    def differing(self, first: Print, second: Print) -> tuple[bool, tuple[int, ...]]:
        """Whether the losses differ, and the parameters whose gradients do."""
        if not self.loss:
            return False, ()
        pairs = zip(first.gradients, second.gradients, strict=True)
        places = tuple(place for place, (a, b) in enumerate(pairs) if a != b and place not in self.unsteady)
        return first.losses != second.losses, places

    def agree(self, first: Print, second: Print) -> bool:
        """Whether two runs of a step are the same as far as they are compared."""
        return self.differing(first, second) == (False, ())

    def leave_out(self, first: Print, second: Print) -> None:
        """These two runs differ by the nature of their kernels: what differs is compared no more."""
        loss, places = self.differing(first, second)
        if loss:
            self.loss = False
        self.unsteady.update(places)

    def compared(self, parameters: int) -> int:
        """How many parameters' gradients are compared."""
        return parameters - len(self.unsteady) if self.loss else 0


def kind_of(runs: Sequence[Print], comparable: Comparable) -> Kind:
    """Whether one run of a step was off, or the device keeps giving other results.

    Arguments:
        runs: the step itself and its re-runs.
        comparable: what of them counts.
    """
    seen = Counter(
        (run.losses, tuple(bits for place, bits in enumerate(run.gradients) if place not in comparable.unsteady))
        for run in runs
    )
    return "transient" if max(seen.values()) >= len(runs) - 1 else "persistent"


@dataclass(slots=True)
class Rhythm:
    """Which steps are run again; every rank counts alike.

    Arguments:
        every: steps between two re-runs; 0 for none.
    """

    every: int
    done: int = 0
    """Steps that were due so far."""
    alert: int = 0
    """Steps that are still run again one by one, after a mismatch."""

    @property
    def calibrating(self) -> bool:
        """Whether it is still being learned what repeats itself."""
        return self.done < CALIBRATING

    def due(self, step: int) -> bool:
        """Whether this step is run again."""
        return bool(self.every) and (self.calibrating or self.alert > 0 or step % self.every == 0)

    def passed(self, *, run: bool, mismatch: bool) -> None:
        """A step that was due is over; ``run`` says whether every rank has run it again."""
        self.done += run
        self.alert = ALERT if mismatch else max(0, self.alert - 1)

    def stop(self) -> None:
        """Run nothing again any more."""
        self.every = 0


def is_nature(differing: int, ranks: int) -> bool:
    """Whether so many ranks differ at one step that it is the code, not a device: faults do not come together."""
    return differing > max(1, ranks // 2)
