"""Ranks that are in the same state. What they run is pure, so one of them stands for all: 4,096 cost no more than 5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stayfinite.core.judge import Memory
from stayfinite.core.keeping import NO_CANDIDATE, CheckpointCadence, Keeping, Proof, SnapshotCadence, accept, refuse
from stayfinite.core.ladder import Options
from stayfinite.core.policy import Policy


@dataclass(frozen=True, slots=True)
class State:
    """A training state, as far as it matters here."""

    step: int
    poisoned: bool
    memory: Memory


class SimulatedRing:
    """Snapshots in memory: the product's proof over states that are two numbers."""

    def __init__(self, prove_steps: int) -> None:
        self._prove_steps = prove_steps
        self._proof = NO_CANDIDATE
        self.candidate: State | None = None
        self.good: State | None = None
        self.cost = 0.01

    @property
    def candidate_step(self) -> int | None:
        """As the product's ring."""
        return self._proof.step

    @property
    def partly_proved(self) -> bool:
        """As the product's ring."""
        return self.candidate is not None and self._proof.accepted > 0

    def take(self, state: State) -> None:
        """Copy a state, in the candidate's place."""
        self.candidate, self._proof = state, Proof(state.step)

    def count(self, step: int) -> bool:
        """As the product's ring."""
        before, self._proof = self._proof, accept(self._proof, step)
        return self._proof != before and self._proof.accepted >= self._prove_steps

    def refused(self, step: int) -> None:
        """As the product's ring."""
        self._proof = refuse(self._proof, step, 3)
        if self._proof == NO_CANDIDATE:
            self.candidate = None

    def forget(self) -> None:
        """As the product's ring."""
        self.candidate, self._proof = None, NO_CANDIDATE

    def sound(self) -> bool:
        """Whether the copy is finite."""
        assert self.candidate is not None
        return not self.candidate.poisoned

    def conclude(self, good: bool) -> int | None:
        """As the product's ring."""
        candidate, self.candidate, self._proof = self.candidate, None, NO_CANDIDATE
        assert candidate is not None
        if not good:
            return None
        self.good = candidate
        return candidate.step


@dataclass(slots=True)
class Kin:
    """Ranks in the same state, in one attempt."""

    lowest: int
    """The lowest of them."""

    ranks: int
    policy: Policy
    keeping_of: Callable[[SimulatedRing, SnapshotCadence], Keeping]
    clock: Callable[[], float]
    memory: Memory = field(default_factory=Memory)
    poisoned: bool = False
    """Whether its weights hold NaN."""

    over: str = ""
    """How it ended: `crashed`, `stopped`, `done`; empty while it trains."""

    ring: SimulatedRing = field(init=False)
    keeping: Keeping = field(init=False)
    checkpoints: CheckpointCadence = field(init=False)

    def __post_init__(self) -> None:
        self.ring = SimulatedRing(self.policy.prove_steps)
        self.keeping = self.keeping_of(self.ring, SnapshotCadence(self.policy.snapshot_share, self.clock))
        self.checkpoints = CheckpointCadence(self.policy, first=self.lowest == 0, many=True, clock=self.clock)

    def options(self) -> Options:
        """What could be done beyond a veto."""
        good = None if self.keeping.ring is None else self.ring.good
        return Options(cut=True, rollback_to=None if good is None else good.step)
