"""Actions beyond a veto (cut, rollback, escalation), and the states they need."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from stayfinite.core.decision import Decision
from stayfinite.core.judge import Memory, after_rollback
from stayfinite.core.keeping import Agreement, Keeping, SnapshotCadence, settle
from stayfinite.core.ladder import Options
from stayfinite.core.policy import Policy
from stayfinite.errors import StateError
from stayfinite.guard.feeding.loaders import Loaders
from stayfinite.guard.gates.schedule import LearningRateCut, give_back, settings_of
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.guard.recovering.saving import Saving
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.state.parts import TrainingParts
from stayfinite.state.snapshots import Snapshot, SnapshotRing


class Recovery:
    """Keeps known-good states and takes the rungs of the ladder.

    Arguments:
        notes: returns everything else to restore, as plain data.
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
        self._cadence = SnapshotCadence(policy.snapshot_share)
        self._keeping = Keeping(None, self._cadence)
        self.renew()

    def renew(self) -> None:
        """Start over after the parameters changed: earlier states no longer fit."""
        self._parts.left_out()  # notes what is trained now: it may be frozen again before the next copy
        if not self._acts or not self._policy.snapshots:
            return
        many = self._ranks.world > 1
        self.ring = SnapshotRing(self._parts, prove_steps=self._policy.prove_steps, many=many)
        self._cadence = SnapshotCadence(self._policy.snapshot_share)
        in_doubt = self._keeping.in_doubt
        self._keeping = Keeping(self.ring, self._cadence)
        self._keeping.in_doubt = in_doubt

    def known_good(self) -> Snapshot | None:
        """Newest state proved by later steps."""
        return None if self.ring is None else self.ring.known_good()

    def options(self) -> Options:
        """Actions available now."""
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

    def decided(self, decision: Decision, *, in_doubt: bool = False) -> None:
        """Process a decided step; ``in_doubt`` while an unusual one is on probation."""
        self._loaders.in_doubt = in_doubt
        if not decision.refused:
            self._cut.advance()
            self._loaders.accepted(decision.step)
        else:
            self._loaders.refused(decision.step, finite=decision.signals.finite)
        self._note_proof(self._keeping.decided(decision.step, refused=decision.refused, in_doubt=in_doubt))

    def _note_proof(self, agreement: Agreement[int | None]) -> None:
        """Run a protocol that may prove a snapshot, which clears the batches before it."""
        if (proved := settle(agreement, self._ranks.highest)) is not None:
            self._loaders.proved(proved)

    def snapshot_if_due(self, step: int) -> None:
        """Take a snapshot if it is due; call it between two steps."""
        reason = settle(self._keeping.snapshot_if_due(step, self._take), self._ranks.highest)
        if reason:
            self._give_up(step, f"snapshots are off, so rollback is not possible: {reason}", reason)

    def _take(self, step: int) -> str:
        assert self.ring is not None
        try:
            self.ring.take(step, notes=self._notes)
        except (MemoryError, RuntimeError, StateError) as error:
            # torch raises RuntimeError if it cannot allocate on the host.
            return getattr(error, "message", "") or f"{type(error).__name__}: {error}"
        return ""

    def checkpoint(self, step: int, saving: Saving) -> None:
        """Save the training; call it between two steps, with none pending."""
        # During a probation the known-good state is from before the doubted step.
        ring = None if self._keeping.in_doubt else self.ring
        self._note_proof(self._keeping.make_room())
        saving.save(step, ring, self._keeping, self._notes)
        if ring is not None:
            self._cadence.put_off(step)

    # -- rungs -------------------------------------------------------------------------------------------------------

    def begin_cut(self) -> dict[str, Any]:
        """Cut the learning rate; return a record of it."""
        self._cut.begin()
        return {"factor": self._policy.cut_factor, "steps": self._policy.cut_steps}

    def roll_back(self, step: int, memory: Memory) -> tuple[dict[str, Any], Memory | None]:
        """Restore the newest known-good state; no step may be pending.

        The data continues from its position: batches since that state are in the past, and enter the ledger for a
        process that resumes from an older checkpoint.

        Arguments:
            memory: the policy's memory; used budgets stay used.

        Returns:
            A record of it, and the policy's new memory; None if the state did not fit and nothing changed.
        """
        assert self.ring is not None
        good = self.ring.known_good()
        assert good is not None, "the ladder offers a rollback only where there is a known-good state"
        self.ring.take_up()
        if (failed := self._put_back(good, step)) is not None:
            return {"failed": failed}, None
        return self._gone_back(step, good), after_rollback(memory, memory_of(good))

    def try_known_good(self, step: int) -> Memory | None:
        """Put the known-good state in place and set the current one aside; no step may be pending.

        Returns:
            The policy's memory of that state; None if it failed and nothing changed.
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
        """Keep the known-good state after a trial; return a record of it."""
        assert self.ring is not None
        self.ring.take_up()
        good = self.ring.known_good()
        assert good is not None
        return self._gone_back(step, good)

    def end_trial(self, step: int) -> Memory | None:
        """Restore the state set aside for a trial; return its memory, or None if it failed."""
        assert self.ring is not None
        aside = self.ring.take_up()
        if aside is None or self._put_back(aside, step) is not None:
            return None
        return memory_of(aside)

    def _put_back(self, snapshot: Snapshot, step: int) -> str | None:
        """Put the training into another state; return why it failed (nothing changed then), else None.

        Random numbers continue, as the data does.

        Raises:
            StateError: on all ranks, if only some could go back.
        """
        assert self.ring is not None
        optimizer = self._parts.optimizer
        # Without a scheduler in the guard, group settings belong to the loop, which has not gone back.
        loops_own = None if self._parts.scheduler is not None else settings_of(optimizer)
        failed: StateError | None = None
        try:
            self.ring.rollback_to(snapshot, rng=False)
        except StateError as error:
            failed = error
        if where := self._ranks.highest(0 if failed is None else self._ranks.rank + 1):
            if self._ranks.highest(int(failed is None)):
                raise StateError(
                    f"rollback to step {snapshot.step} failed on rank {where - 1}: ranks hold different weights",
                    fix="restart; guard.resume() continues from the last checkpoint",
                ) from failed
            assert failed is not None
            line = f"rollback to step {snapshot.step} failed, nothing changed: {failed}"
            self._give_up(step, line, failed.message)
            return failed.message
        if loops_own is not None:
            give_back(optimizer, loops_own)
        return None

    def _gone_back(self, step: int, good: Snapshot) -> dict[str, Any]:
        batches = self._loaders.pass_over(good.step)
        self._recorder.keep_ledger(json.dumps(self._loaders.state_dict()).encode())
        # A snapshot now would be the same state under another number.
        self._cadence.put_off(step)
        return {"from_step": step, "to_step": good.step, "batches_passed_over": batches}

    def escalate(self) -> dict[str, Any]:
        """Change to the next safer precision; return a record of it."""
        before = self._precision.current
        return {"from_precision": before, "to_precision": self._precision.escalate()}

    def in_words(self) -> str:
        """What is kept, for ``guard.describe()``."""
        if self.ring is None:
            return "no snapshots"
        good = self.ring.known_good()
        kept = "none known-good yet" if good is None else f"last known-good at step {good.step}"
        return f"snapshots in memory, {kept}"

    def _give_up(self, step: int, line: str, reason: str) -> None:
        self.ring = self._keeping.ring = None
        self._recorder.trouble("snapshots-off", step, line, reason=reason)


def memory_of(snapshot: Snapshot) -> Memory:
    """The policy's memory when a snapshot was taken."""
    return Memory.from_json(snapshot.state.notes["guard"]["memory"])
