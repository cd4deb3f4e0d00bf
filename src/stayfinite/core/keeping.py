"""Which training states are kept and when: snapshots, their proof, and checkpoints, at the same steps on every rank.

A protocol as in ``agreeing.py``. The copying is done by the snapshot ring (``state/snapshots.py``) and the writer, or
by the simulator's stand-ins. If one rank fails to copy, its yield makes all ranks give up together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from stayfinite.core.policy import Policy

Answer = TypeVar("Answer")

Agreement = Generator[int, int, Answer]


def settle(agreement: Agreement[Answer], highest: Callable[[int], int]) -> Answer:
    """Run a protocol to its end; ``highest`` is an all-reduce with max."""
    try:
        number = next(agreement)
        while True:
            number = agreement.send(highest(number))
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer


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


@dataclass(frozen=True, slots=True)
class Proof:
    """Evidence for a candidate snapshot."""

    step: int | None = None
    """Last step that the candidate contains; None without a candidate."""

    accepted: int = 0
    """Later steps accepted since the last refusal."""

    refusals: int = 0


NO_CANDIDATE = Proof()


def accept(proof: Proof, step: int) -> Proof:
    """Count an accepted step; steps up to the candidate's own prove nothing."""
    if proof.step is None or step <= proof.step:
        return proof
    return replace(proof, accepted=proof.accepted + 1)


def refuse(proof: Proof, step: int, most: int) -> Proof:
    """Restart the proof after a refused step; drop the candidate at the ``most``-th refusal."""
    if proof.step is None or step <= proof.step:
        return proof
    refusals = proof.refusals + 1
    return NO_CANDIDATE if refusals >= most else replace(proof, accepted=0, refusals=refusals)


ANOTHER = "another rank could not"


class Ring(Protocol):
    """In-memory copies of the training state: known-good ones and one candidate."""

    @property
    def candidate_step(self) -> int | None:
        """Last step that the candidate contains."""

    @property
    def partly_proved(self) -> bool:
        """Whether a step was accepted since the candidate was taken or since the last refusal."""

    @property
    def cost(self) -> float:
        """Seconds of training time that the last snapshot took."""

    def count(self, step: int) -> bool:
        """Count an accepted step; return whether the candidate is due for judgment."""

    def refused(self, step: int) -> None:
        """Record a refused step."""

    def forget(self) -> None:
        """Drop the candidate."""

    def sound(self) -> bool:
        """Whether this rank's copy is complete and finite."""

    def conclude(self, good: bool) -> int | None:
        """Judge the candidate; return its step if it is now known-good."""


class Keeping:
    """Keeps snapshots and checkpoints of one training."""

    def __init__(self, ring: Ring | None, cadence: SnapshotCadence) -> None:
        self.ring = ring
        self.cadence = cadence
        self.in_doubt = False
        """Whether an unusual step is on probation: until it ends, no later state is taken or proved."""

    def decided(self, step: int, *, refused: bool, in_doubt: bool) -> Agreement[int | None]:
        """Record a decided step; return the step of a snapshot that it proved, else None."""
        self.in_doubt = in_doubt
        ring = self.ring
        if ring is None or in_doubt:
            return None
        if not refused:
            return (yield from self._judge(ring)) if ring.count(step) else None
        if ring.candidate_step is not None and step <= ring.candidate_step:
            # The snapshot was taken before this refusal was known.
            self.cadence.at_once()
        ring.refused(step)
        return None

    def snapshot_if_due(self, step: int, take: Callable[[int], str]) -> Agreement[str]:
        """Take a snapshot if it is due; call it between two steps.

        Arguments:
            take: takes the snapshot; returns an error text, empty on success.

        Returns:
            Why all ranks must give up snapshots; empty on success.
        """
        ring = self.ring
        if ring is None or self.in_doubt or not self.cadence.due(step):
            return ""
        if ring.candidate_step is not None and not self.cadence.outdated:
            return ""
        failed = take(step)
        if (yield int(bool(failed))):
            self.ring = None
            return failed or f"{ANOTHER} take one"
        yield from self.cadence.took(step, ring.cost)
        return ""

    def make_room(self) -> Agreement[int | None]:
        """Judge the candidate early because a checkpoint needs its place; returns as `decided`.

        Without an accepted step since the last refusal it stays a candidate.
        """
        ring = self.ring
        if ring is None or self.in_doubt or not ring.partly_proved:
            return None
        return (yield from self._judge(ring))

    def save(self, copy: Callable[[], str], write: Callable[[], None]) -> Agreement[str]:
        """Save a checkpoint: every rank copies its share, and all write only if all could copy.

        Arguments:
            copy: copies this rank's share, as the ring's candidate if there is a ring and no doubt; returns an error
                text, empty on success.
            write: starts writing the share.

        Returns:
            Why there is no checkpoint; empty on success.
        """
        failed = copy()
        if (yield int(bool(failed))):
            if self.ring is not None and not self.in_doubt:
                # Ranks that could copy have a candidate that others lack, and would judge it alone.
                self.ring.forget()
            return failed or f"{ANOTHER} copy its state"
        write()
        return ""

    def _judge(self, ring: Ring) -> Agreement[int | None]:
        bad = yield int(not ring.sound())
        proved = ring.conclude(not bad)
        if proved is not None:
            yield from self.cadence.proved(ring.cost)
        return proved
