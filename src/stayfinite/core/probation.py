"""Judge an unusual step by its consequences: the losses after it, compared with the window before it.

- The level is unchanged: the step was harmless; after a few such steps a larger gradient is allowed.
- The level rose: are the last known-good weights better on the current data? If not, the data, the loss or the schedule
has changed: a new phase, reported once. If so, it depends on the cause:
- An update with a learning rate that had jumped, or an implausible loss: go back.
- A merely unusual batch may have taught something at the cost of the rest, as a rare class does. It gets until the end
of the probation; the run goes back only if the level is not recovering by then.

Batches are run again to compare the weights if the forward pass is known. Otherwise the known-good weights are used for
one to three steps (a trial), and replaced again if the losses do not change.

Everything here is a pure function of the steps' numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from stayfinite.core.doubts import LATELY, SPAN, Blame, Doubt, Level, Probation, Trial
from stayfinite.core.policy import Policy
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SPIKE, Verdict

WINDOW = 128
"""Losses that a level is compared with."""

LEAST = 16
"""Losses needed before anything counts as unusual."""

EARLY, SETTLED = 8, 16
"""Steps after which a change may show, and after which a level counts."""

LOOK_EVERY = 4

SOON = 32
"""A falling level is waited for if it would be back within this many steps."""

RATE_RISEN = 1.5
"""A learning rate above this multiple of the window's highest explains a rising loss."""

RATES = 64
"""Learning rates to keep."""

STAYS, LASTS = 0.35, 0.6
"""If the losses after a jump fall by at most these shares of it, at once and after a few steps, the jump has stayed."""

CLEAR = 6.0
"""Deviations between two levels at which one loss is enough to distinguish them; below it takes three."""

GAIN = 0.3
"""Share of the rise that the known-good weights must undo to count as better."""

GROWTH = 4.0
"""Factor by which the gradient limit grows after harmless bounded steps, and shrinks after a harmful one."""

HARMLESS = 2
"""Harmless bounded steps before the limit grows."""

TO_ONE_STATE = 2
"""Most returns to the same state."""

A_WHILE = 5_000
"""Steps within which a run may go back ``Policy.max_rollbacks`` times."""

IN_A_PHASE = (16, 24, 32, 48)
"""Steps after which the known-good weights are tried again: a corrupt shard looks like a phase until it ends."""


class Move(StrEnum):
    """Action that the losses require."""

    NOTHING = "nothing"
    NEW_PHASE = "new-phase"
    """Report that the level has changed, and that the weights are not the cause."""
    COMPARE = "compare"
    """Compare with the known-good weights; answer with :func:`compared`, :func:`begin_trial` or :func:`cannot_compare`.
    """
    GO_BACK = "go-back"
    """Keep the known-good state, which does better (after a trial it is already in place)."""
    RETURN = "return"
    """The trial cleared the weights: restore the current ones and report a new phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the guard can do now."""

    known_good: int | None = None
    """Step of the known-good state, or None."""
    forward: bool = False
    """Whether batches can be run again."""


NO_MEANS = Means()


@dataclass(frozen=True, slots=True)
class Followed:
    """Result of following an accepted step."""

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
    """Process a finite, accepted step.

    Arguments:
        bounded: allowed multiple of the usual norm if the gradient was above it.
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
    """Process the answer to ``Move.COMPARE``.

    Arguments:
        earlier: mean loss of the last batches with the known-good weights.
        present: mean loss of the same batches with the current weights.
        own: loss of the unusual step's own batch with the known-good weights, if known.
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
    # Unusual data is unusual for the earlier weights too.
    halfway = (level.middle + level.place([doubt.loss])) / 2
    batch_was_usual = own is not None and math.isfinite(own) and level.place([own]) <= max(level.high, halfway)
    patient = doubt.blame is Blame.BATCH and not doubt.phase and not batch_was_usual
    if patient and len(doubt.followed) < policy.probation:
        return Followed(Move.NOTHING, replace(state, doubt=replace(doubt, asked=True)))
    return Followed(Move.GO_BACK, went_back(state, policy, known_good), f"{in_words(doubt)}; {evidence}")


def begin_trial(state: Probation, known_good: int) -> Probation:
    """Record that the known-good state is in place for a trial."""
    doubt = state.doubt
    assert doubt is not None
    return replace(state, trial=Trial(suspect=doubt.level.place(doubt.followed[-SPAN:]), known_good=known_good))


def cannot_compare(state: Probation, policy: Policy) -> Followed:
    """Accept the new level: neither comparison was possible."""
    assert state.doubt is not None
    return _no_better(state, state.doubt, policy, "no known-good state to compare with")


def went_back(state: Probation, policy: Policy, known_good: int) -> Probation:
    """State after a return to the known-good weights: the losses before the doubt are the usual ones."""
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
    """State in a process that resumes a checkpoint: during a trial only the known-good state was saved."""
    return state if state.trial is None else went_back(state, policy, state.trial.known_good)


def start_anew(state: Probation) -> Probation:
    """Start a new, announced phase: nothing before it counts as usual."""
    return Probation(factor=state.factor, ceiling=state.ceiling, backs=state.backs)


def in_words(doubt: Doubt) -> str:
    """Describe how the loss changed since the unusual step."""
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
        # Exclude the jump itself, if there was one.
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
        # A lower level is harmless, but the old data may return to weights that have forgotten it.
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
    """Whether to compare with the earlier weights now."""
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
    # A kind of batch that did this before is part of the data.
    again = doubt.blame is Blame.BATCH and not doubt.phase and Blame.BATCH in lately
    return len(lately) < policy.max_rollbacks and len(alike) < TO_ONE_STATE and not again


def _has_stayed(doubt: Doubt, level: Level) -> bool:
    """Whether the losses stayed at the unusual step's level: its batch was no exception."""
    own = level.place([doubt.loss])
    jump = own - level.middle
    first, last = level.place(doubt.followed[:3]), level.place(doubt.followed[SPAN // 2 : SPAN])
    return first >= own - STAYS * jump and last >= own - LASTS * jump


def _old_level_is_back(doubt: Doubt, level: Level) -> bool:
    """Whether a reported new phase ended at once, as a corrupt stretch of data does."""
    half = SPAN // 2
    now, before = level.place(doubt.followed[-half:]), level.place(doubt.followed[-SPAN:-half])
    return now > level.high and before - now > 0.5 * (before - level.middle)


def _on_its_way_back(doubt: Doubt, level: Level, place: float) -> bool:
    before = level.place(doubt.followed[-2 * SPAN : -SPAN])
    pace = (before - place) / SPAN
    return pace > 0 and (place - level.high) / pace < SOON


def _harmless(state: Probation, doubt: Doubt, policy: Policy) -> Probation:
    """Close a doubt without lasting harm: after a few harmless bounded steps, raise the limit."""
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
    """Clear the weights: report a new phase once, and watch it until the probation is over."""
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
