"""Act on an unusual step that was taken, once the losses after it are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stayfinite.core.judge import Memory, adopt
from stayfinite.core.probation import Followed, Move, begin_trial, cannot_compare, compared
from stayfinite.core.spikes import limits
from stayfinite.guard.gates.judge import Judge
from stayfinite.guard.incidents.comparing import Comparison
from stayfinite.guard.incidents.incidents import Incidents
from stayfinite.guard.recovering.recovery import Recovery
from stayfinite.guard.telling.recorder import Recorder


class OnProbation:
    """Carries out the moves of ``core.probation``: compare, try, go back, report a new phase."""

    def __init__(
        self, judge: Judge, recovery: Recovery, comparison: Comparison, recorder: Recorder, incidents: Incidents
    ) -> None:
        self._judge, self._recovery, self._comparison = judge, recovery, comparison
        self._recorder, self._incidents = recorder, incidents
        self._doubted: int | None = None
        """The unusual step that a trial is about."""

    def act(self, followed: Followed, step: int) -> Memory | None:
        """Carry out a move; no step may be pending if it changes the weights.

        Returns:
            The policy's new memory if the training was put into another state, else None.
        """
        if followed.move is Move.COMPARE:
            return self._compare(step)
        if followed.move is Move.NEW_PHASE:
            self._tell_phase(followed, step)
            return None
        if followed.move is Move.RETURN:
            self._tell_phase(followed, step)
            return self._return(followed, step)
        return self._stay(followed, step)

    def changes_weights(self, followed: Followed) -> bool:
        """Whether :meth:`act` may put the training into another state."""
        return followed.move is not Move.NEW_PHASE

    def _compare(self, step: int) -> Memory | None:
        memory, good = self._judge.memory, self._recovery.known_good()
        probation = memory.probation
        # Steps decided together with this one may have settled it.
        if good is None or probation.doubt is None or probation.trial is not None:
            return None
        if (losses := self._comparison.with_weights_of(good, probation.doubt.step)) is None:
            return self._try(memory, step)
        answer = compared(
            probation,
            self._judge.policy,
            known_good=good.step,
            earlier=losses.earlier,
            present=losses.present,
            own=losses.own,
        )
        after = self._judge.memory = adopt(memory, answer)
        if answer.move is Move.NEW_PHASE:
            self._tell_phase(answer, step)
        if answer.move is not Move.GO_BACK:
            return None
        done, then = self._recovery.roll_back(step, after)
        self._tell_back(answer, step, done)
        if then is None:
            return None
        self._blame(probation.doubt.step, then)
        return replace(then, probation=after.probation)

    def _try(self, memory: Memory, step: int) -> Memory | None:
        """Start a trial with the known-good state, because batches cannot be run again."""
        then = self._recovery.try_known_good(step)
        if then is None:
            answer = cannot_compare(memory.probation, self._judge.policy)
            self._judge.memory = adopt(memory, answer)
            if answer.move is Move.NEW_PHASE:
                self._tell_phase(answer, step)
            return None
        assert memory.probation.doubt is not None
        self._doubted = memory.probation.doubt.step
        good = self._recovery.known_good()
        assert good is not None
        self._recorder.announce("trial", step, to_step=good.step, doubt=memory.probation.doubt.step)
        spikes = replace(then.ladder.spikes, factor=memory.probation.factor)
        return Memory(replace(memory.ladder, spikes=spikes), then.trends, begin_trial(memory.probation, good.step))

    def _stay(self, followed: Followed, step: int) -> Memory | None:
        """Keep the known-good state, which is already in place and won the trial."""
        done = self._recovery.keep_trial(step)
        self._tell_back(followed, step, done)
        if self._doubted is not None:
            self._blame(self._doubted, self._judge.memory)
        return None

    def _blame(self, step: int, then: Memory) -> None:
        self._incidents.blame(step, limits(then.ladder.spikes, self._judge.policy))

    def _return(self, followed: Followed, step: int) -> Memory | None:
        then = self._recovery.end_trial(step)
        if then is None:
            return None
        memory = self._judge.memory
        spikes = replace(then.ladder.spikes, factor=followed.state.factor)
        return Memory(replace(memory.ladder, spikes=spikes), memory.trends, followed.state)

    def _tell_phase(self, followed: Followed, step: int) -> None:
        line = f"step {step}: new phase. {_sentence(followed.words)}. Training continues."
        self._recorder.announce("new-phase", step, line, code="new-phase", reason=followed.words)

    def _tell_back(self, followed: Followed, step: int, done: dict[str, Any]) -> None:
        line = f"step {step}: rolled back to step {done.get('to_step')}. {_sentence(followed.words)}."
        if "failed" in done:
            line = f"step {step}: rollback failed, nothing changed: {done['failed']}"
        self._recorder.announce("rollback", step, line, code="harm", reason=followed.words, **done)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
