"""Which training states are kept and when: snapshots, their proof, and checkpoints, at the same steps on every rank.

A protocol as in ``agreeing.py``. The copying is done by the snapshot ring (``state/snapshots.py``) and the writer, or
by the simulator's stand-ins. If one rank fails to copy, its yield makes all ranks give up together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stayfinite.core.agreeing import Agreement
from stayfinite.core.cadence import SnapshotCadence

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
