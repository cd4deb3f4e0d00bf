"""Known-good training states in memory, to go back to.

A snapshot is a candidate when it is taken, since its trouble may show only later. It becomes known-good when enough
later steps were accepted and its numbers are finite. Two copies of the state are kept: one known-good, one candidate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stayfinite.errors import PolicyError
from stayfinite.state.host import HostMemory
from stayfinite.state.parts import TrainingParts
from stayfinite.state.training import TrainingState, capture, restore


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A training state in memory."""

    step: int
    """The last step that it contains; 0 for the beginning."""

    state: TrainingState
    """Valid until the ring uses its memory again; ``ring.known_good()`` always is."""


class SnapshotRing:
    """Takes snapshots when it is asked to, and knows which of them can be trusted.

    Example:
        >>> ring = SnapshotRing(parts)
        >>> ring.take(0)
        >>> for step in range(1, steps + 1):
        ...     if take_step():
        ...         ring.accepted(step)
        ...     else:
        ...         ring.refused(step)
        >>> if (good := ring.known_good()) is not None:
        ...     ring.rollback_to(good)

    Arguments:
        parts: the training.
        keep: copies of the state in host memory, at least 2.
        prove_steps: later steps that have to be accepted before a snapshot is known-good.
        drop_refusals: a candidate goes when this many later steps were refused before it was proved.
        agree: with several ranks, whether all of them find a snapshot good; a collective. They then promote it at the
            same step.
    """

    def __init__(
        self,
        parts: TrainingParts,
        *,
        keep: int = 2,
        prove_steps: int = 20,
        drop_refusals: int = 3,
        agree: Callable[[bool], bool] | None = None,
    ) -> None:
        if keep < 2 or prove_steps < 1 or drop_refusals < 1:
            raise PolicyError(
                f"snapshots: keep={keep} (at least 2), prove_steps={prove_steps}, drop_refusals={drop_refusals} "
                "(at least 1)"
            )
        self._parts = parts
        self._prove_steps, self._drop_refusals = prove_steps, drop_refusals
        self._agree = agree
        self._memories = [HostMemory() for _ in range(keep)]
        self._good: list[Snapshot] = []
        self._candidate: Snapshot | None = None
        self._aside: Snapshot | None = None
        self._proof = self._refusals = 0
        self._take_seconds = self._check_seconds = 0.0
        self._last_state: TrainingState | None = None

    # -- taking ------------------------------------------------------------------------------------------------------

    def take(self, step: int, *, notes: Callable[[], Mapping[str, Any]] | None = None) -> Snapshot:
        """Take a snapshot now, in place of an unproved candidate. Waits if a checkpoint is still written from it.

        A snapshot that has become known-good is never overwritten by this, unless ``keep`` of them are.

        Arguments:
            step: the last accepted step, which the snapshot will contain.
            notes: what it returns is kept in ``snapshot.state.notes``.
        """
        if self._candidate is not None and self._spare() is None:
            self._drop()
        memory = self._spare()
        if memory is None:
            kept = [snapshot.state.memory for snapshot in self._good[-1:]]
            memory = next(memory for memory in self._memories if memory not in kept)
            memory.wait_free()
        self._good = [snapshot for snapshot in self._good if snapshot.state.memory is not memory]
        return self._take(step, memory, notes)

    @property
    def cost(self) -> float:
        """Seconds that the last snapshot has cost training."""
        stalled = 0.0 if self._last_state is None else self._last_state.landing.stalled()
        return self._take_seconds + stalled + self._check_seconds

    @property
    def nbytes(self) -> int:
        """Host memory in use."""
        return sum(memory.nbytes for memory in self._memories)

    # -- proving -----------------------------------------------------------------------------------------------------

    def accepted(self, step: int) -> None:
        """A step was accepted; steps up to the candidate's own prove nothing about it."""
        candidate = self._candidate
        if candidate is None or step <= candidate.step:
            return
        self._proof += 1
        if self._proof < self._prove_steps:
            return
        if self._agree is None and not candidate.state.landing.arrived:
            return
        self._judge(candidate)

    def make_room(self) -> None:
        """A newer state needs the candidate's place: the later steps that were accepted so far have to be proof enough.

        With none since the last refusal it proves nothing and stays a candidate.
        """
        if self._candidate is not None and self._proof:
            self._judge(self._candidate)

    def _judge(self, candidate: Snapshot) -> None:
        begun = time.perf_counter()
        good = not candidate.state.poisoned()
        if self._agree is not None:
            good = self._agree(good)
        self._check_seconds = time.perf_counter() - begun
        self._drop()
        if good:
            self._good = [*self._good, candidate][-(len(self._memories) - 1) :]

    def refused(self, step: int) -> None:
        """A step was refused: the candidate has to prove itself anew, and goes if this happens again and again."""
        if self._candidate is None or step <= self._candidate.step:
            return
        self._proof = 0
        self._refusals += 1
        if self._refusals >= self._drop_refusals:
            self._drop()

    def known_good(self) -> Snapshot | None:
        """The newest snapshot that later steps have proved."""
        return self._good[-1] if self._good else None

    @property
    def candidate(self) -> Snapshot | None:
        """The snapshot that has yet to prove itself."""
        return self._candidate

    @property
    def aside(self) -> Snapshot | None:
        """The state that was put aside for a trial of another one."""
        return self._aside

    # -- going back --------------------------------------------------------------------------------------------------

    def put_aside(self, step: int, *, notes: Callable[[], Mapping[str, Any]] | None = None) -> Snapshot:
        """Keep the present state, in the candidate's place, while another one is tried."""
        self._drop()
        kept = [snapshot.state.memory for snapshot in self._good[-1:]]
        memory = next(memory for memory in self._memories if memory not in kept)
        # A checkpoint may still be written from it.
        memory.wait_free()
        self._good = self._good[-1:]
        self._aside = self._take(step, memory, notes)
        self._drop()
        return self._aside

    def take_up(self) -> Snapshot | None:
        """The trial is over: what was put aside, which is valid until the next snapshot."""
        aside, self._aside = self._aside, None
        return aside

    def put_in_place(self, snapshot: Snapshot) -> None:
        """Put the training into a snapshot's state, with random numbers that go on; of what was put aside, later.

        Raises:
            StateError: it does not fit the training any more. Nothing was changed.
        """
        self.rollback_to(snapshot, rng=False)

    def rollback_to(self, snapshot: Snapshot, *, rng: bool = True) -> None:
        """Put the training back to a snapshot; later ones are forgotten.

        Raises:
            StateError: it does not fit the training any more. Nothing was changed.
        """
        restore(self._parts, snapshot.state, rng=rng)
        self._good = [each for each in self._good if each.step <= snapshot.step]
        if self._candidate is not None and self._candidate is not snapshot:
            self._drop()

    def _spare(self) -> HostMemory | None:
        used = [s.state.memory for s in (*self._good, self._candidate, self._aside) if s is not None]
        return next((memory for memory in self._memories if memory not in used and not memory.held), None)

    def _take(self, step: int, memory: HostMemory, notes: Callable[[], Mapping[str, Any]] | None) -> Snapshot:
        begun = time.perf_counter()
        state = capture(self._parts, memory=memory, notes=None if notes is None else notes())
        self._take_seconds = time.perf_counter() - begun
        self._candidate = Snapshot(step=step, state=state)
        self._proof = self._refusals = 0
        self._last_state = state
        return self._candidate

    def _drop(self) -> None:
        self._candidate = None
        self._proof = self._refusals = 0
