"""Which states of a training are kept, and when: snapshots, their proof, checkpoints. The same steps on every rank.

A protocol in the sense of ``agreeing.py``. The copying itself is done by a ring of snapshots (``state/snapshots.py``)
and by whoever saves; the simulator has others. A rank that fails to copy takes the same way as the rest: what it yields
makes all of them give up together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stayfinite.core.agreeing import Agreement
from stayfinite.core.cadence import SnapshotCadence

ANOTHER = "another rank could not"


class Ring(Protocol):
    """Copies of the training state in memory: known-good ones and one candidate."""

    @property
    def candidate_step(self) -> int | None:
        """The last step that the candidate contains."""

    @property
    def partly_proved(self) -> bool:
        """Whether a step was accepted since the candidate was taken, or since the last refusal."""

    @property
    def cost(self) -> float:
        """Seconds that the last snapshot has cost training."""

    def count(self, step: int) -> bool:
        """A step was accepted; returns whether the candidate is to be judged now."""

    def refused(self, step: int) -> None:
        """A step was refused."""

    def forget(self) -> None:
        """There is no candidate any more."""

    def sound(self) -> bool:
        """Whether this rank's copy is whole and its numbers are finite."""

    def conclude(self, good: bool) -> int | None:
        """The candidate is judged; returns its step if it is known-good now."""


class Keeping:
    """What is kept of one training.

    Arguments:
        ring: the snapshots; None where there are none.
        cadence: when they are due.
    """

    def __init__(self, ring: Ring | None, cadence: SnapshotCadence) -> None:
        self.ring = ring
        self.cadence = cadence
        self.in_doubt = False
        """Whether an unusual step is on probation: no later state is proved or taken meanwhile."""

    def heard(self, step: int, *, refused: bool, in_doubt: bool) -> Agreement[int | None]:
        """A step has become known; returns the step of a snapshot that it has proved."""
        self.in_doubt = in_doubt
        ring = self.ring
        if ring is None or in_doubt:
            return None
        if not refused:
            return (yield from self._judge(ring)) if ring.count(step) else None
        if ring.candidate_step is not None and step <= ring.candidate_step:
            # It was taken while this step's schedule was ahead in good faith.
            self.cadence.at_once()
        ring.refused(step)
        return None

    def snapshot_if_due(self, step: int, take: Callable[[int], str]) -> Agreement[str]:
        """Between two steps: take a snapshot if it is time.

        Arguments:
            step: the last one.
            take: takes it; returns why it could not, empty if it could.

        Returns:
            Why snapshots have to be given up, on all ranks alike; empty where all is well.
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
        """A checkpoint needs the candidate's place: what it has proved so far has to be enough; returns as `heard`.

        With no accepted step since the last refusal it proves nothing and stays a candidate.
        """
        ring = self.ring
        if ring is None or self.in_doubt or not ring.partly_proved:
            return None
        return (yield from self._judge(ring))

    def save(self, copy: Callable[[], str], write: Callable[[], None]) -> Agreement[str]:
        """Save a checkpoint: every rank copies its share, and they are written if all could.

        Arguments:
            copy: copies this rank's share, as the ring's candidate where there is a ring and no doubt; returns why it
                could not, empty if it could.
            write: has the share written.

        Returns:
            Why there is no checkpoint; empty where it is under way.
        """
        failed = copy()
        if (yield int(bool(failed))):
            if self.ring is not None and not self.in_doubt:
                # Those that could copy have a candidate that others lack; they would judge it alone.
                self.ring.forget()
            return failed or f"{ANOTHER} copy its state"
        write()
        return ""

    def _judge(self, ring: Ring) -> Agreement[int | None]:
        bad = yield int(not ring.sound())
        proved = ring.conclude(not bad)
        if proved is not None:
            # Its whole cost is known now.
            yield from self.cadence.proved(ring.cost)
        return proved
