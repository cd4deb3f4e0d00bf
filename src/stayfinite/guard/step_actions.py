"""Record a decided step and act on it, and on an unusual step once the losses after it are known."""

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from stayfinite.core.decision import Action, Decision
from stayfinite.core.judge import Memory, adopt, as_veto, fresh_phase
from stayfinite.core.probation import Followed, Move, begin_trial, cannot_compare, compared
from stayfinite.core.spikes import factor_of, limits
from stayfinite.guard.gates.choice import choose_gate
from stayfinite.guard.gates.gates import Judge, JudgedStep, TrainingSetup
from stayfinite.guard.incidents.incidents import Incidents
from stayfinite.guard.incidents.rerunning import Comparison
from stayfinite.guard.recovering.recovery import Recovery
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.measure.reading import Opened


@dataclass(eq=False)
class StepActions:
    """Owns the gate, which is replaced when the training is restored.

    Arguments:
        incidents: captures and explains bad steps before anything is done about them.
        comparison: compares the known-good weights with the current ones after an unusual step.
    """

    setup: TrainingSetup
    judge: Judge
    recovery: Recovery
    recorder: Recorder
    incidents: Incidents
    comparison: Comparison
    _doubted: int | None = None
    """The unusual step that a trial is about."""
    _known: Opened | None = None

    def __post_init__(self) -> None:
        self._choose(self.judge.memory)

    def follow(self, decided: list[JudgedStep], step: int) -> Decision | None:
        """Act on steps decided by the current ``step``; return the decision to stop, if there is one."""
        queue = deque(decided)
        while queue:
            each = queue.popleft()
            decision = each.judgement.decision
            doubt = each.judgement.memory.probation.doubt
            self.recovery.decided(decision, in_doubt=doubt is not None)
            if doubt is not None:
                self.incidents.watch(doubt.step)
            try:
                self.incidents.look(each, step)
            except KeyboardInterrupt:
                # On an interrupt during an autopsy, still report what was refused.
                self._note(each)
                raise
            if decision.action is Action.ROLLBACK:
                late = [*queue, *self.gate.drain()]
                done, memory = self.recovery.roll_back(step, each.judgement.memory)
                self.continue_with(each.judgement.memory if memory is None else memory)
                self._note(each, done)
                self._pass_over(late)
                return None
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
        self.setup.schedule.forget()
        self.setup.buffers.keep()
        self._remember(memory)

    def go_back(self, step: int) -> dict[str, Any] | None:
        """Restore the newest known-good state, if there is one; no step may be pending."""
        if self.recovery.known_good() is None:
            return None
        done, memory = self.recovery.roll_back(step, self.judge.memory)
        if memory is None:
            return None
        self.continue_with(memory)
        return done

    def begin_phase(self) -> None:
        """Start an announced phase: earlier levels no longer count. No step may be pending."""
        self._remember(fresh_phase(self.judge.memory))
        self._keep_watch()

    def _remember(self, memory: Memory) -> None:
        self.judge.memory = memory
        self._choose(memory)

    def _choose(self, memory: Memory) -> None:
        self.gate, self.cost = choose_gate(self.setup, self.judge.policy, memory.ladder.spikes)
        self._factor = factor_of(memory.ladder.spikes, self.judge.policy)

    def _weigh(self, followed: Followed, queue: deque[JudgedStep], step: int) -> None:
        """Act on the losses since an unusual step."""
        # No step may be pending when the weights change.
        late = [] if followed.move is Move.NEW_PHASE else self.gate.drain()
        memory = self._carry_out(followed, step)
        if memory is None:
            queue.extend(late)
            return
        self._pass_over([*queue, *late])
        queue.clear()
        self.continue_with(memory)

    def _keep_watch(self) -> None:
        """Release kept batches if no step is on probation, and pass the gradient limit to the gate."""
        memory = self.judge.memory
        if memory.probation.doubt is None:
            self.incidents.look_away()
        if (factor := factor_of(memory.ladder.spikes, self.judge.policy)) != self._factor:
            self._factor = factor
            self.gate.allow(factor)

    def _note(self, each: JudgedStep, done: dict[str, Any] | None = None) -> None:
        self.recorder.note(each.judgement, done)
        self.incidents.tell()
        self._known = each.opened

    def _act(self, action: Action) -> dict[str, Any] | None:
        if action is Action.CUT:
            return self.recovery.begin_cut()
        if action is Action.ESCALATE:
            # Only fp16 needs a scaler, and nothing escalates to fp16.
            self.setup.scaler = None
            return self.recovery.escalate()
        return None

    def _pass_over(self, late: list[JudgedStep]) -> None:
        """Record pending steps without further effect: they belong to the abandoned state."""
        for each in late:
            self._note(replace(each, judgement=as_veto(each.judgement)))

    # -- on probation ------------------------------------------------------------------------------------------------

    def _carry_out(self, followed: Followed, step: int) -> Memory | None:
        """Compare, try, go back or report a new phase, as ``core.probation`` asks.

        Returns:
            The policy's new memory if the training was put into another state, else None.
        """
        if followed.move is Move.COMPARE:
            return self._compare(step)
        if followed.move is Move.GO_BACK:
            self._stay(followed, step)
            return None
        self._tell_phase(followed, step)
        return self._return(followed, step) if followed.move is Move.RETURN else None

    def _compare(self, step: int) -> Memory | None:
        memory, good = self.judge.memory, self.recovery.known_good()
        probation = memory.probation
        # Steps decided together with this one may have settled it.
        if good is None or probation.doubt is None or probation.trial is not None:
            return None
        if (losses := self.comparison.with_weights_of(good, probation.doubt.step)) is None:
            return self._try(memory, step)
        answer = compared(
            probation,
            self.judge.policy,
            known_good=good.step,
            earlier=losses.earlier,
            present=losses.present,
            own=losses.own,
        )
        after = self._adopt(answer, step)
        if answer.move is not Move.GO_BACK:
            return None
        done, then = self.recovery.roll_back(step, after)
        self._tell_back(answer, step, done)
        if then is None:
            return None
        self._blame(probation.doubt.step, then)
        return replace(then, probation=after.probation)

    def _adopt(self, answer: Followed, step: int) -> Memory:
        self.judge.memory = adopt(self.judge.memory, answer)
        if answer.move is Move.NEW_PHASE:
            self._tell_phase(answer, step)
        return self.judge.memory

    def _try(self, memory: Memory, step: int) -> Memory | None:
        """Start a trial with the known-good state, because batches cannot be run again."""
        then = self.recovery.try_known_good(step)
        if then is None:
            self._adopt(cannot_compare(memory.probation, self.judge.policy), step)
            return None
        assert memory.probation.doubt is not None
        self._doubted = memory.probation.doubt.step
        good = self.recovery.known_good()
        assert good is not None
        self.recorder.announce("trial", step, to_step=good.step, doubt=memory.probation.doubt.step)
        spikes = replace(then.ladder.spikes, factor=memory.probation.factor)
        return Memory(replace(memory.ladder, spikes=spikes), then.trends, begin_trial(memory.probation, good.step))

    def _stay(self, followed: Followed, step: int) -> None:
        """Keep the known-good state, which is already in place and won the trial."""
        done = self.recovery.keep_trial(step)
        self._tell_back(followed, step, done)
        if self._doubted is not None:
            self._blame(self._doubted, self.judge.memory)

    def _blame(self, step: int, then: Memory) -> None:
        self.incidents.blame(step, limits(then.ladder.spikes, self.judge.policy))

    def _return(self, followed: Followed, step: int) -> Memory | None:
        then = self.recovery.end_trial(step)
        if then is None:
            return None
        memory = self.judge.memory
        spikes = replace(then.ladder.spikes, factor=followed.state.factor)
        return Memory(replace(memory.ladder, spikes=spikes), memory.trends, followed.state)

    def _tell_phase(self, followed: Followed, step: int) -> None:
        line = f"step {step}: new phase. {_sentence(followed.words)}. Training continues."
        self.recorder.announce("new-phase", step, line, code="new-phase", reason=followed.words)

    def _tell_back(self, followed: Followed, step: int, done: dict[str, Any]) -> None:
        line = f"step {step}: rolled back to step {done.get('to_step')}. {_sentence(followed.words)}."
        if "failed" in done:
            line = f"step {step}: rollback failed, nothing changed: {done['failed']}"
        self.recorder.announce("rollback", step, line, code="harm", reason=followed.words, **done)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
