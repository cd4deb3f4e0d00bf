"""Known-good training states in memory, for rollbacks.

A snapshot starts as a candidate, since its trouble may show only later. It becomes known-good when enough later steps
were accepted and its numbers are finite. Two copies are kept: one known-good, one candidate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stayfinite.core.keeping import NO_CANDIDATE, Proof, accept, refuse
from stayfinite.errors import PolicyError
from stayfinite.state.landing import HostMemory
from stayfinite.state.parts import TrainingParts
from stayfinite.state.training import TrainingState, capture, restore

DROP_REFUSALS = 3
"""Later refused steps after which an unproved candidate is dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A training state in memory."""

    step: int
    """Last step that it contains; 0 for the initial state."""

    state: TrainingState
    """Valid until the ring reuses its memory; ``ring.known_good()`` always is."""


class SnapshotRing:
    """Takes snapshots on request, and tracks which of them can be trusted.

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
        prove_steps: later accepted steps that make a snapshot known-good.
        many: whether the caller asks all ranks, between :meth:`sound` and :meth:`conclude`.
    """

    def __init__(
        self,
        parts: TrainingParts,
        *,
        prove_steps: int = 20,
        many: bool = False,
    ) -> None:
        if prove_steps < 1:
            raise PolicyError(f"snapshots: prove_steps={prove_steps} (at least 1)")
        self._parts = parts
        self._prove_steps, self._many = prove_steps, many
        self._memories = [HostMemory(), HostMemory()]
        self._good: list[Snapshot] = []
        self._candidate: Snapshot | None = None
        self._aside: Snapshot | None = None
        self._proof = NO_CANDIDATE
        self._take_seconds = self._check_seconds = 0.0
        self._last_state: TrainingState | None = None

    # -- taking ------------------------------------------------------------------------------------------------------

    def take(self, step: int, *, notes: Callable[[], Mapping[str, Any]] | None = None) -> Snapshot:
        """Take a snapshot now, replacing an unproved candidate. Waits while a checkpoint is written from it.

        Never overwrites the newest known-good snapshot.

        Arguments:
            step: last accepted step, which the snapshot will contain.
            notes: its result is kept in ``snapshot.state.notes``.
        """
        if self._candidate is not None and self._spare() is None:
            self._drop()
        memory = self._spare()
        if memory is None:
            memory = self._freed()
        self._good = [snapshot for snapshot in self._good if snapshot.state.memory is not memory]
        return self._take(step, memory, notes)

    @property
    def cost(self) -> float:
        """Seconds of training time that the last snapshot took."""
        stalled = 0.0 if self._last_state is None else self._last_state.landing.stalled()
        return self._take_seconds + stalled + self._check_seconds

    @property
    def nbytes(self) -> int:
        """Host memory in use."""
        return sum(memory.nbytes for memory in self._memories)

    # -- proving -----------------------------------------------------------------------------------------------------

    def accepted(self, step: int) -> None:
        """Count an accepted step, and judge the candidate if it is due; steps up to its own prove nothing."""
        if self.count(step):
            self.conclude(self.sound())

    def count(self, step: int) -> bool:
        """Count an accepted step; return whether the candidate is due for judgment."""
        before, self._proof = self._proof, accept(self._proof, step)
        if self._candidate is None or self._proof == before or self._proof.accepted < self._prove_steps:
            return False
        # Several ranks judge at the same step, and wait for the copy.
        return self._many or self._candidate.state.landing.arrived

    def sound(self) -> bool:
        """Whether the candidate is finite; waits for the copy."""
        assert self._candidate is not None
        begun = time.perf_counter()
        good = not self._candidate.state.poisoned()
        self._check_seconds = time.perf_counter() - begun
        return good

    def conclude(self, good: bool) -> int | None:
        """Judge the candidate; return its step if it is now known-good."""
        candidate = self._candidate
        assert candidate is not None
        self._drop()
        if not good:
            return None
        self._good = [*self._good, candidate][-(len(self._memories) - 1) :]
        return candidate.step

    def forget(self) -> None:
        """Drop the candidate."""
        self._drop()

    @property
    def partly_proved(self) -> bool:
        """Whether a step was accepted since the candidate was taken or since the last refusal."""
        return self._candidate is not None and self._proof.accepted > 0

    @property
    def candidate_step(self) -> int | None:
        """Last step that the candidate contains."""
        return None if self._candidate is None else self._candidate.step

    def refused(self, step: int) -> None:
        """Restart the candidate's proof after a refused step; drop it after several."""
        self._proof = refuse(self._proof, step, DROP_REFUSALS)
        if self._proof == NO_CANDIDATE:
            self._candidate = None

    def known_good(self) -> Snapshot | None:
        """Newest snapshot proved by later steps."""
        return self._good[-1] if self._good else None

    @property
    def candidate(self) -> Snapshot | None:
        """The unproved snapshot."""
        return self._candidate

    # -- going back --------------------------------------------------------------------------------------------------

    def put_aside(self, step: int, *, notes: Callable[[], Mapping[str, Any]] | None = None) -> Snapshot:
        """Keep the current state, in the candidate's place, while another one is tried."""
        self._drop()
        memory = self._freed()
        self._good = self._good[-1:]
        self._aside = self._take(step, memory, notes)
        self._drop()
        return self._aside

    def take_up(self) -> Snapshot | None:
        """End the trial; return the state set aside, which is valid until the next snapshot."""
        aside, self._aside = self._aside, None
        return aside

    def rollback_to(self, snapshot: Snapshot, *, rng: bool = True) -> None:
        """Restore a snapshot; later ones are dropped.

        Raises:
            StateError: it no longer fits the training. Nothing was changed.
        """
        restore(self._parts, snapshot.state, rng=rng)
        self._good = [each for each in self._good if each.step <= snapshot.step]
        if self._candidate is not None and self._candidate is not snapshot:
            self._drop()

    def _spare(self) -> HostMemory | None:
        used = [s.state.memory for s in (*self._good, self._candidate, self._aside) if s is not None]
        return next((memory for memory in self._memories if memory not in used and not memory.held), None)

    def _freed(self) -> HostMemory:
        """Memory other than that of the newest known-good snapshot, once no checkpoint is written from it."""
        kept = [snapshot.state.memory for snapshot in self._good[-1:]]
        memory = next(memory for memory in self._memories if memory not in kept)
        memory.wait_free()
        return memory

    def _take(self, step: int, memory: HostMemory, notes: Callable[[], Mapping[str, Any]] | None) -> Snapshot:
        begun = time.perf_counter()
        state = capture(self._parts, memory=memory, notes=None if notes is None else notes())
        self._take_seconds = time.perf_counter() - begun
        self._candidate = Snapshot(step=step, state=state)
        self._proof = Proof(step)
        self._last_state = state
        return self._candidate

    def _drop(self) -> None:
        self._candidate, self._proof = None, NO_CANDIDATE
