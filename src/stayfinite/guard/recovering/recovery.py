"""What the guard does beyond a veto: cut, go back, change precision; and what it keeps so that it can."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stayfinite.core.decision import Decision
from stayfinite.core.judge import Memory
from stayfinite.core.policy import Policy
from stayfinite.core.rungs import Options
from stayfinite.errors import StateError
from stayfinite.guard.feeding.loaders import Loaders
from stayfinite.guard.gates.cut import LearningRateCut
from stayfinite.guard.gates.group_settings import give_back, settings_of
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.recovering.cadence import SnapshotCadence
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.guard.recovering.saving import Saving
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.state.parts import TrainingParts
from stayfinite.state.snapshots import Snapshot, SnapshotRing


class Recovery:
    """Keeps known-good states and takes the rungs of the ladder.

    Arguments:
        parts: the training.
        policy: budgets and cadences.
        ranks: all processes of the training.
        cut: holds the learning rate down.
        precision: the autocast in force.
        loaders: where the data stands.
        recorder: is told what happened.
        rerun: whether batches can be run again.
        notes: everything beside ``parts`` that has to come back, as plain data.
    """

    def __init__(
        self,
        parts: TrainingParts,
        policy: Policy,
        ranks: Ranks,
        *,
        cut: LearningRateCut,
        precision: PrecisionControl,
        loaders: Loaders,
        recorder: Recorder,
        rerun: Callable[[], bool],
        notes: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._parts, self._policy, self._ranks = parts, policy, ranks
        self._cut, self._precision, self._loaders = cut, precision, loaders
        self._recorder, self._notes = recorder, notes
        self._acts = policy.mode == "protect"
        self.ring: SnapshotRing | None = None
        self._rerun = rerun
        self._in_doubt = False
        """Whether an unusual step is on probation: no later state is proved or taken meanwhile."""
        self.renew()

    def renew(self) -> None:
        """The training has got other parameters: earlier states no longer fit it."""
        if not self._acts or not self._policy.snapshots:
            return
        agree = None if self._ranks.world == 1 else lambda good: not self._ranks.highest(int(not good))
        self.ring = SnapshotRing(self._parts, prove_steps=self._policy.prove_steps, agree=agree)
        self._cadence = SnapshotCadence(self._policy.snapshot_share, self._ranks)

    def known_good(self) -> Snapshot | None:
        """The newest state that later steps have proved."""
        return None if self.ring is None else self.ring.known_good()

    def options(self) -> Options:
        """What could be done at this moment."""
        if not self._acts:
            return Options()
        good = self.known_good()
        cut = all("lr" in group for group in self._parts.optimizer.param_groups)
        return Options(
            cut=cut,
            rollback_to=None if good is None else good.step,
            escalate_to=self._precision.next,
            rerun=self._rerun(),
        )

    def heard(self, decision: Decision, *, in_doubt: bool = False) -> None:
        """A step has become known; ``in_doubt`` while an unusual one is on probation."""
        self._in_doubt = self._loaders.in_doubt = in_doubt
        if not decision.refused:
            self._cut.advance()
            self._loaders.accepted(decision.step)
        else:
            self._loaders.refused(decision.step, finite=decision.signals.finite)
        if self.ring is None or in_doubt:
            return
        if not decision.refused:
            with self._watching_for_proof(self.ring):
                self.ring.accepted(decision.step)
            return
        if self.ring.candidate is not None and decision.step <= self.ring.candidate.step:
            # It was taken while this step's schedule was ahead in good faith.
            self._cadence.at_once()
        self.ring.refused(decision.step)

    @contextmanager
    def _watching_for_proof(self, ring: SnapshotRing) -> Iterator[None]:
        """Within, a snapshot may become known-good: the batches before it are innocent, and its whole cost is known."""
        before = ring.known_good()
        yield
        if (good := ring.known_good()) is not None and good is not before:
            self._loaders.proved(good.step)
            self._cadence.proved(ring.cost)

    def snapshot_if_due(self, step: int) -> None:
        """Between two steps: take a snapshot if it is time."""
        ring = self.ring
        if ring is None or self._in_doubt or not self._cadence.due(step):
            return
        if ring.candidate is not None and not self._cadence.outdated:
            return
        failed = ""
        try:
            ring.take(step, notes=self._notes)
        except (MemoryError, RuntimeError, StateError) as error:
            # Out of memory is a RuntimeError where torch allocates on the host.
            failed = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
        if (failed or self._cadence.allocating) and self._ranks.highest(int(bool(failed))):
            reason = failed or "another rank could not take one"
            self._give_up(step, f"snapshots are off, a rollback will not be possible: {reason}", reason)
            return
        self._cadence.took(step, ring.cost)

    def checkpoint(self, step: int, saving: Saving) -> None:
        """Between two steps: save the training; nothing may be under way."""
        # While a step is on probation, the known-good state is the one from before it.
        ring = None if self._in_doubt else self.ring
        if ring is not None:
            with self._watching_for_proof(ring):
                ring.make_room()
        saving.save(step, ring, self._notes)
        if ring is not None:
            self._cadence.put_off(step)

    # -- rungs -------------------------------------------------------------------------------------------------------

    def begin_cut(self) -> dict[str, Any]:
        """Cut the learning rate; returns what was done."""
        self._cut.begin()
        return {"factor": self._policy.cut_factor, "steps": self._policy.cut_steps}

    def roll_back(self, step: int, memory: Memory) -> tuple[dict[str, Any], Memory | None]:
        """Put the training back to the newest known-good state; nothing may be under way.

        The data goes on from where it stands: the batches since that state are behind it, and are entered in the
        ledger for a process that resumes from an older checkpoint.

        Arguments:
            step: the present one.
            memory: what the policy remembers; its counts of what was tried go on.

        Returns:
            What was done; and what the policy is to remember, None if the state did not fit and nothing was changed.
        """
        assert self.ring is not None
        good = self.ring.known_good()
        assert good is not None, "the ladder offers a rollback only where there is a known-good state"
        self.ring.take_up()
        if (failed := self._put_back(good, step)) is not None:
            return {"failed": failed}, None
        then = memory_of(good)
        ladder = replace(memory.ladder, spikes=then.ladder.spikes, in_a_row=0, searching=0)
        probation = replace(
            then.probation,
            doubt=None,
            trial=None,
            factor=memory.probation.factor,
            ceiling=memory.probation.ceiling,
            backs=memory.probation.backs,
        )
        return self._gone_back(step, good), Memory(ladder, then.trends, probation)

    def try_known_good(self, step: int) -> Memory | None:
        """Put the known-good state in place of the present one, which is kept aside; nothing may be under way.

        Returns:
            What the policy remembered there; None where it could not be done and nothing was changed.
        """
        assert self.ring is not None
        good = self.ring.known_good()
        assert good is not None, "a trial is begun only where there is a known-good state"
        failed = False
        try:
            self.ring.put_aside(step, notes=self._notes)
        except (MemoryError, RuntimeError, StateError):
            failed = True
        if self._ranks.highest(int(failed)) or self._put_back(good, step) is not None:
            if self.ring is not None:
                self.ring.take_up()
            return None
        return memory_of(good)

    def keep_trial(self, step: int) -> dict[str, Any]:
        """The known-good state did better, and stays; returns what was done."""
        assert self.ring is not None
        self.ring.take_up()
        good = self.ring.known_good()
        assert good is not None
        return self._gone_back(step, good)

    def end_trial(self, step: int) -> Memory | None:
        """The known-good state did no better: the one that was put aside comes back, with what was remembered there."""
        assert self.ring is not None
        aside = self.ring.take_up()
        if aside is None or self._put_back(aside, step) is not None:
            return None
        return memory_of(aside)

    def _put_back(self, snapshot: Snapshot, step: int) -> str | None:
        """Put the training into another state; returns why it could not be, and nothing was changed.

        Random numbers go on as they were: the data does too, and must not repeat itself.
        """
        assert self.ring is not None
        optimizer = self._parts.optimizer
        # What no schedule of the guard's moves belongs to the loop, and the loop has not gone back.
        loops_own = None if self._parts.scheduler is not None else settings_of(optimizer)
        try:
            self.ring.put_in_place(snapshot)
        except StateError as error:
            line = f"going back to step {snapshot.step} failed, nothing was changed: {error}"
            self._give_up(step, line, error.message)
            return error.message
        if loops_own is not None:
            give_back(optimizer, loops_own)
        return None

    def _gone_back(self, step: int, good: Snapshot) -> dict[str, Any]:
        batches = self._loaders.pass_over(good.step)
        self._recorder.keep_ledger(json.dumps(self._loaders.ledger()).encode())
        # A snapshot right now would be the same state under another number.
        self._cadence.put_off(step)
        return {"from_step": step, "to_step": good.step, "batches_passed_over": batches}

    def escalate(self) -> dict[str, Any]:
        """Change to the next safer precision; returns what was done."""
        before = self._precision.current
        return {"from_precision": before, "to_precision": self._precision.escalate()}

    def in_words(self) -> str:
        """What is kept, for ``guard.describe()``."""
        if self.ring is None:
            return "no snapshots"
        good = self.ring.known_good()
        kept = "none proved yet" if good is None else f"the last known-good one of step {good.step}"
        return f"snapshots in memory, {kept}"

    def _give_up(self, step: int, line: str, reason: str) -> None:
        self.ring = None
        self._recorder.trouble("snapshots-off", step, line, reason=reason)


def memory_of(snapshot: Snapshot) -> Memory:
    """What the policy remembered when a snapshot was taken."""
    return Memory.from_json(snapshot.state.notes["guard"]["memory"])
