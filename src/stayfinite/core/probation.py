"""Harm is judged by its consequences: what follows an unusual step, not the step itself.

A step that was unusual and was taken puts the run on probation. The losses that follow are compared with the window
before it:

- The level is as before: nothing happened, and in the long run a gradient of that size is allowed more.
- It rose: are the weights of the last known-good state better on the data that comes now? If not, the data, the loss or
  the schedule has changed: a new phase, told once. If so, it depends on what is to blame.
- An update by a learning rate that had jumped, or a loss beyond anything that data could explain: go back.
- A batch that was merely unusual may have taught something at the cost of the rest, as a rare class does. It is given
  until the end of the probation, and the run goes back only if the level is not even on its way back by then.

Whether the earlier weights do better is found by running batches again where the forward pass is known. Where it is
not, they are put in place for a step or three (a trial), and taken out again if the losses stay where they were.

Everything here is a pure function of the numbers of the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from stayfinite.core.doubts import LATELY, Blame, Doubt, Probation, Trial
from stayfinite.core.levels import SPAN, Level
from stayfinite.core.policy import Policy
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SPIKE, Verdict

WINDOW = 128
"""Losses that a level is compared with."""

LEAST = 16
"""Losses that have to be known before anything is unusual."""

EARLY, SETTLED = 8, 16
"""Steps after which a change may be seen, and after which a level counts."""

LOOK_EVERY = 4

SOON = 32
"""Steps within which a level that falls at its present pace has to be back, to be waited for."""

RATE_RISEN = 1.5
"""A learning rate this many times the highest of the window is a schedule's doing, and so is the loss under it."""

RATES = 64
"""Learning rates that are remembered."""

STAYS, LASTS = 0.35, 0.6
"""Where the losses after a jump have fallen by no more than these shares of it, at once and after a few steps, what
jumped has stayed."""

CLEAR = 6.0
"""Deviations between two levels from which on one loss tells them apart; otherwise it takes three."""

GAIN = 0.3
"""Share of the rise that the earlier weights have to undo, to be called better."""

GROWTH = 4.0
"""What the factor for gradients grows by when bounded steps have done no harm, and is cut by when one has."""

HARMLESS = 2
"""Bounded steps without harm that make it grow."""

TO_ONE_STATE = 2
"""How often a run may go back to the same state."""

A_WHILE = 5_000
"""Steps in which a run may go back ``Policy.max_rollbacks`` times."""

IN_A_PHASE = (16, 24, 32, 48)
"""Steps after which the earlier weights are asked once more: a corrupt shard looks like a phase until it is over."""


class Move(StrEnum):
    """What the losses ask for."""

    NOTHING = "nothing"
    NEW_PHASE = "new-phase"
    """Tell that the level has changed, and not through the weights."""
    COMPARE = "compare"
    """Find out whether the known-good weights do better; :func:`compared` takes the answer, :func:`begin_trial` or
    :func:`cannot_compare` another way."""
    GO_BACK = "go-back"
    """The known-good state does better, and is to stay (after a trial it is in place already)."""
    RETURN = "return"
    """The trial has shown that the weights were not to blame: put the present ones back, and tell of a new phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the guard could do at this moment."""

    known_good: int | None = None
    """Step of the known-good state, if there is one."""
    forward: bool = False
    """Whether batches can be run again."""


NO_MEANS = Means()


@dataclass(frozen=True, slots=True)
class Followed:
    """What follows from a step that was taken."""

    move: Move
    state: Probation
    words: str = field(default="", compare=False)
    """The evidence, for people."""


def follow(
    signals: Signals,
    verdict: Verdict,
    state: Probation,
    policy: Policy,
    *,
    bounded: float | None = None,
    means: Means = NO_MEANS,
) -> Followed:
    """Take in a finite step that was taken.

    Arguments:
        signals: its numbers.
        verdict: what the spike test said of it.
        state: what is remembered.
        policy: the settings.
        bounded: what its gradient was allowed to be over the usual norm, where it was more.
        means: what could be done.
    """
    if state.trial is not None:
        return _in_trial(signals.loss, state, state.trial, policy)
    doubt = state.doubt
    if doubt is not None:
        doubt = replace(doubt, followed=(*doubt.followed, signals.loss))
    elif verdict and verdict & SPIKE and len(state.losses) >= LEAST:
        doubt = _open(signals, verdict, state, bounded)
    rate = signals.lr
    raised = rate is not None and bool(state.rates) and rate > RATE_RISEN * max(state.rates)
    state = replace(
        state,
        losses=(*state.losses[-(WINDOW - 1) :], signals.loss),
        rates=state.rates if rate is None else (*state.rates[-(RATES - 1) :], rate),
        since_odd_update=0 if raised else min(state.since_odd_update + 1, LATELY + 1),
        doubt=doubt,
    )
    if doubt is None or len(doubt.followed) < EARLY or len(doubt.followed) % LOOK_EVERY:
        return Followed(Move.NOTHING, state)
    return _look(rate, doubt, state, policy, means)


def compared(
    state: Probation, policy: Policy, *, known_good: int, earlier: float, present: float, own: float | None = None
) -> Followed:
    """The answer to ``Move.COMPARE``.

    Arguments:
        state: what is remembered.
        policy: the settings.
        known_good: the step of the known-good state.
        earlier: mean loss of the last batches with its weights.
        present: mean loss of the same batches with the present weights.
        own: loss of the unusual step's own batch with the known-good weights, if it is known.
    """
    doubt = state.doubt
    assert doubt is not None, "no comparison was made"
    level = doubt.level
    if not math.isfinite(earlier):
        return _no_better(state, doubt, policy, "the earlier weights give NaN or inf on this data")
    now, then = level.place([present]) if math.isfinite(present) else math.inf, level.place([earlier])
    evidence = f"same batches: loss {earlier:.4g} with known-good weights, {present:.4g} with current ones"
    if math.isfinite(now) and now - then <= max(GAIN * (now - level.middle), level.sigma):
        return _no_better(state, doubt, policy, evidence)
    # Unusual data are unusual for the earlier weights too.
    halfway = (level.middle + level.place([doubt.loss])) / 2
    batch_was_usual = own is not None and math.isfinite(own) and level.place([own]) <= max(level.high, halfway)
    patient = doubt.blame is Blame.BATCH and not doubt.phase and not batch_was_usual
    if patient and len(doubt.followed) < policy.probation:
        return Followed(Move.NOTHING, replace(state, doubt=replace(doubt, asked=True)))
    return Followed(Move.GO_BACK, went_back(state, policy, known_good), f"{in_words(doubt)}; {evidence}")


def begin_trial(state: Probation, known_good: int) -> Probation:
    """The known-good state was put in place of the present one, until the losses tell."""
    doubt = state.doubt
    assert doubt is not None
    return replace(state, trial=Trial(suspect=doubt.level.place(doubt.followed[-SPAN:]), known_good=known_good))


def cannot_compare(state: Probation, policy: Policy) -> Followed:
    """Neither way was possible: the new level has to be lived with."""
    assert state.doubt is not None
    return _no_better(state, state.doubt, policy, "no known-good state to compare with")


def went_back(state: Probation, policy: Policy, known_good: int) -> Probation:
    """The training is in the known-good state again: what was before the doubt is what is usual."""
    doubt = state.doubt
    assert doubt is not None
    factor, ceiling = state.factor, state.ceiling
    blame = Blame.UPDATE if doubt.phase else doubt.blame
    if doubt.bounded is not None and blame is not Blame.BATCH:
        ceiling = max(policy.bound_factor, min(ceiling, doubt.bounded / GROWTH))
        factor = policy.bound_factor if factor is None else min(factor, ceiling)
    return Probation(
        losses=doubt.usual,
        rates=state.rates,
        factor=factor,
        ceiling=ceiling,
        backs=(*state.backs[-7:], (doubt.step + len(doubt.followed), known_good, blame)),
    )


def resumed(state: Probation, policy: Policy) -> Probation:
    """What is remembered by a process that takes up a saved state: of a trial only the known-good state was saved."""
    return state if state.trial is None else went_back(state, policy, state.trial.known_good)


def start_anew(state: Probation) -> Probation:
    """A new phase was announced: nothing that was usual before it counts."""
    return Probation(factor=state.factor, ceiling=state.ceiling, backs=state.backs)


def in_words(doubt: Doubt) -> str:
    """What is held against a step."""
    level = doubt.level
    now, before = (level.loss_at(place) for place in (level.place(doubt.followed[-SPAN:]), level.middle))
    return f"loss {before:.4g} -> {now:.4g} since step {doubt.step} ({len(doubt.followed)} steps)"


def _open(signals: Signals, verdict: Verdict, state: Probation, bounded: float | None) -> Doubt:
    odd = state.since_odd_update <= LATELY
    return Doubt(
        step=signals.step,
        loss=signals.loss,
        loss_spike=Verdict.LOSS_SPIKE in verdict,
        blame=Blame.UPDATE if odd else Blame.FAULT if Verdict.FAULT in verdict else Blame.BATCH,
        usual=state.losses,
        # Without the jump itself, if there was one.
        rate=max(state.rates[:-LATELY], default=None),
        bounded=bounded,
    )


def _look(rate: float | None, doubt: Doubt, state: Probation, policy: Policy, means: Means) -> Followed:
    level, steps = doubt.level, len(doubt.followed)
    place = level.place(doubt.followed[-SPAN:])
    over = steps >= policy.probation
    if not doubt.hurt and place > level.high:
        doubt = replace(doubt, hurt=True)
        state = replace(state, doubt=doubt)
    if place <= level.high:
        if steps >= SETTLED and place >= level.low:
            return Followed(Move.NOTHING, _harmless(state, doubt, policy))
        # A level far below is no harm, but the old data may come back to weights that have lost it.
        return Followed(Move.NOTHING, replace(state, doubt=None) if over else state)
    risen = rate is not None and doubt.rate is not None and rate > RATE_RISEN * doubt.rate
    possible = _may_go_back(doubt, state, policy, means)
    if over and (doubt.phase or risen or not possible):
        why = "the learning rate was raised" if risen else "it has stayed there"
        return _no_better(state, doubt, policy, why)
    if over and _on_its_way_back(doubt, level, place):
        return Followed(Move.NOTHING, replace(state, doubt=None))
    if risen or not possible or not _asks(doubt, level, place, means, over=over):
        return Followed(Move.NOTHING, state)
    asked = replace(doubt, asked=True) if doubt.phase else doubt
    return Followed(Move.COMPARE, replace(state, doubt=asked), in_words(doubt))


def _asks(doubt: Doubt, level: Level, place: float, means: Means, *, over: bool) -> bool:
    """Whether it is time to ask the earlier weights."""
    steps = len(doubt.followed)
    if over:
        return True
    if doubt.phase:
        return steps in IN_A_PHASE if means.forward else not doubt.asked and _old_level_is_back(doubt, level)
    if doubt.blame is Blame.UPDATE:
        return True
    if doubt.blame is Blame.FAULT:
        return steps >= SETTLED and not _on_its_way_back(doubt, level, place)
    return not doubt.asked and steps == EARLY and doubt.loss_spike and (means.forward or _has_stayed(doubt, level))


def _may_go_back(doubt: Doubt, state: Probation, policy: Policy, means: Means) -> bool:
    if means.known_good is None or means.known_good >= doubt.step:
        return False
    lately = [blame for at, _, blame in state.backs if at > doubt.step - A_WHILE]
    alike = [to for _, to, _ in state.backs if to == means.known_good]
    # A kind of batch that has done this before is part of the data.
    again = doubt.blame is Blame.BATCH and not doubt.phase and Blame.BATCH in lately
    return len(lately) < policy.max_rollbacks and len(alike) < TO_ONE_STATE and not again


def _has_stayed(doubt: Doubt, level: Level) -> bool:
    """Whether the losses have stayed where the unusual step's own one was: its batch was no exception."""
    own = level.place([doubt.loss])
    jump = own - level.middle
    first, last = level.place(doubt.followed[:3]), level.place(doubt.followed[SPAN // 2 : SPAN])
    return first >= own - STAYS * jump and last >= own - LASTS * jump


def _old_level_is_back(doubt: Doubt, level: Level) -> bool:
    """Whether what was told as a new phase has ended at once, as a corrupt stretch of data does."""
    half = SPAN // 2
    now, before = level.place(doubt.followed[-half:]), level.place(doubt.followed[-SPAN:-half])
    return now > level.high and before - now > 0.5 * (before - level.middle)


def _on_its_way_back(doubt: Doubt, level: Level, place: float) -> bool:
    before = level.place(doubt.followed[-2 * SPAN : -SPAN])
    pace = (before - place) / SPAN
    return pace > 0 and (place - level.high) / pace < SOON


def _harmless(state: Probation, doubt: Doubt, policy: Policy) -> Probation:
    """Nothing has followed, or it is over: after a few bounded steps that did not hurt, more is allowed."""
    if doubt.bounded is None or doubt.blame is Blame.FAULT:
        return replace(state, doubt=None)
    if doubt.hurt:
        least = max(policy.bound_factor, doubt.bounded / GROWTH)
        return replace(state, doubt=None, harmless=0, factor=None if state.factor is None else min(state.factor, least))
    if state.harmless + 1 < HARMLESS:
        return replace(state, doubt=None, harmless=state.harmless + 1)
    grown = min(max(state.factor or 0.0, GROWTH * doubt.bounded), state.ceiling)
    return replace(state, doubt=None, harmless=0, factor=max(policy.bound_factor, grown))


def _no_better(state: Probation, doubt: Doubt, policy: Policy, why: str) -> Followed:
    """The weights are not to blame: a new phase, told once; it is watched until the probation is over."""
    move = Move.NOTHING if doubt.phase else Move.NEW_PHASE
    over = len(doubt.followed) >= policy.probation
    after = replace(state, doubt=None if over else replace(doubt, phase=True), trial=None)
    if over:
        after = replace(after, losses=doubt.followed[-policy.probation :])
    return Followed(move, after, f"{in_words(doubt)}; {why}" if move is Move.NEW_PHASE else "")


def _in_trial(loss: float, state: Probation, trial: Trial, policy: Policy) -> Followed:
    doubt = state.doubt
    assert doubt is not None
    level = doubt.level
    trial = replace(trial, losses=(*trial.losses, loss))
    needed = 1 if trial.suspect - level.middle > CLEAR * level.sigma else 3
    if len(trial.losses) < needed:
        return Followed(Move.NOTHING, replace(state, trial=trial))
    found = level.place(trial.losses)
    evidence = f"with known-good weights the loss was {level.loss_at(found):.4g}"
    if found < (trial.suspect + level.middle) / 2:
        after = went_back(state, policy, trial.known_good)
        return Followed(Move.GO_BACK, after, f"{in_words(doubt)}; {evidence}")
    return replace(_no_better(state, doubt, policy, evidence), move=Move.RETURN)
