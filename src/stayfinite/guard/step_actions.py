"""Record a decided step and act on it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from stayfinite.core.decision import Action, Decision
from stayfinite.core.judge import Judgement, Memory, as_veto, fresh_phase
from stayfinite.core.probation import Followed
from stayfinite.core.spikes import factor_of
from stayfinite.guard.gates.choice import choose_gate
from stayfinite.guard.gates.gates import JudgedStep, TrainingSetup
from stayfinite.guard.gates.judge import Judge
from stayfinite.guard.incidents.incidents import Incidents
from stayfinite.guard.on_probation import OnProbation
from stayfinite.guard.recovering.recovery import Recovery
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.measure.reading import Opened


class StepActions:
    """Owns the gate, which is replaced when the training is restored.

    Arguments:
        incidents: captures and explains bad steps before anything is done about them.
        on_probation: acts on the consequences of an unusual step.
    """

    def __init__(
        self,
        setup: TrainingSetup,
        judge: Judge,
        recovery: Recovery,
        recorder: Recorder,
        incidents: Incidents,
        on_probation: OnProbation,
    ) -> None:
        self._setup, self._judge, self._recovery, self._recorder = setup, judge, recovery, recorder
        self._incidents = incidents
        self._on_probation = on_probation
        self._factor = factor_of(judge.memory.ladder.spikes, judge.policy)
        self.gate, self.cost = choose_gate(setup, judge.policy, judge.memory.ladder.spikes)
        self._known: Opened | None = None

    def follow(self, decided: list[JudgedStep], step: int) -> Decision | None:
        """Act on steps decided by the current ``step``; return the decision to stop, if there is one."""
        queue = deque(decided)
        while queue:
            each = queue.popleft()
            decision = each.judgement.decision
            doubt = each.judgement.memory.probation.doubt
            self._recovery.decided(decision, in_doubt=doubt is not None)
            if doubt is not None:
                self._incidents.watch(doubt.step)
            try:
                self._incidents.look(each, step)
            except KeyboardInterrupt:
                # On an interrupt during an autopsy, still report what was refused.
                self._note(each)
                raise
            if decision.action is Action.ROLLBACK:
                # Pending steps belong to the abandoned state: record them without further effect.
                late = [*queue, *self.gate.drain()]
                queue.clear()
                self._note(each, self._roll_back(each.judgement, step))
                for other in late:
                    self._note(replace(other, judgement=as_veto(other.judgement)))
                continue
            self._note(each, self._act(decision.action))
            if decision.action is Action.STOP:
                return decision
            if each.judgement.followed is not None:
                self._weigh(each.judgement.followed, queue, step)
            self._keep_watch()
        return None

    @property
    def norms(self) -> dict[str, float]:
        """Gradient norms of the last known step."""
        return {} if self._known is None else self._known.norms

    def continue_with(self, memory: Memory) -> None:
        """Continue with this memory after the training was restored."""
        self._setup.schedule.forget()
        self._setup.buffers.keep()
        self._remember(memory)

    def go_back(self, step: int) -> dict[str, Any] | None:
        """Restore the newest known-good state, if there is one; no step may be pending."""
        if self._recovery.known_good() is None:
            return None
        done, memory = self._recovery.roll_back(step, self._judge.memory)
        if memory is None:
            return None
        self.continue_with(memory)
        return done

    def begin_phase(self) -> None:
        """Start an announced phase: earlier levels no longer count. No step may be pending."""
        self._remember(fresh_phase(self._judge.memory))
        self._keep_watch()

    def _remember(self, memory: Memory) -> None:
        self._judge.memory = memory
        self.gate, self.cost = choose_gate(self._setup, self._judge.policy, memory.ladder.spikes)
        self._factor = factor_of(memory.ladder.spikes, self._judge.policy)

    def _weigh(self, followed: Followed, queue: deque[JudgedStep], step: int) -> None:
        """Act on the losses since an unusual step."""
        late: list[JudgedStep] = []
        if self._on_probation.changes_weights(followed):
            late = self.gate.drain()
        memory = self._on_probation.act(followed, step)
        if memory is None:
            queue.extend(late)
            return
        # Pending steps belong to the abandoned state.
        for other in [*queue, *late]:
            self._note(replace(other, judgement=as_veto(other.judgement)))
        queue.clear()
        self.continue_with(memory)

    def _keep_watch(self) -> None:
        """Release kept batches if no step is on probation, and pass the gradient limit to the gate."""
        memory = self._judge.memory
        if memory.probation.doubt is None:
            self._incidents.look_away()
        if (factor := factor_of(memory.ladder.spikes, self._judge.policy)) != self._factor:
            self._factor = factor
            self.gate.allow(factor)

    def _note(self, each: JudgedStep, done: dict[str, Any] | None = None) -> None:
        self._recorder.note(each.judgement, done)
        self._incidents.tell()
        self._known = each.opened

    def _act(self, action: Action) -> dict[str, Any] | None:
        if action is Action.CUT:
            return self._recovery.begin_cut()
        if action is Action.ESCALATE:
            # Only fp16 needs a scaler, and nothing escalates to fp16.
            self._setup.scaler = None
            return self._recovery.escalate()
        return None

    def _roll_back(self, judgement: Judgement, step: int) -> dict[str, Any]:
        done, memory = self._recovery.roll_back(step, judgement.memory)
        self.continue_with(judgement.memory if memory is None else memory)
        return done
