"""The ladder: map the signals of a step to an action, within budgets.

A non-finite step is never accepted. Other steps are accepted, clipped, bounded or vetoed; ``core.rungs`` decides what
follows when vetoes do not help.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stayfinite.core import spikes
from stayfinite.core.decision import Action, Code, Decision
from stayfinite.core.policy import Policy
from stayfinite.core.refusals import NO_ROW, Row, refused_again, row_in_words, rung_taken, total_in_words
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SpikeState, Verdict, spread

ADDED = {"added": True}
"""Metadata of a field that a state from an earlier version lacks."""

ORDER = (Action.CUT, Action.ROLLBACK, Action.ESCALATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Actions available now."""

    cut: bool = False
    """The guard can cut the learning rate."""

    rollback_to: int | None = None
    """Step of the newest known-good snapshot, or None."""

    escalate_to: str | None = None
    """Next safer precision, if the guard manages precision and there is one."""

    rerun: bool = False
    """Batches can be run again because the forward pass is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungState:
    """Rungs taken so far."""

    cuts: int = 0
    rollbacks: int = 0
    escalations: int = 0
    highest: int = -1
    """Index in ``ORDER`` of the highest rung in this spell; -1 for none."""
    calm: int = 0
    """Steps accepted since the last rung."""
    last_rollback: tuple[int, str] | None = None
    """Step that the last rollback went to, and the trouble that caused it."""

    @property
    def taken(self) -> dict[Action, int]:
        """Rungs by action."""
        return {Action.CUT: self.cuts, Action.ROLLBACK: self.rollbacks, Action.ESCALATE: self.escalations}


def next_rung(trouble: str, state: RungState, policy: Policy, options: Options) -> Action:
    """Return the rung to take now; STOP if none is left."""
    for index, action in enumerate(ORDER):
        beyond = index > state.highest or (action is Action.ESCALATE and index == state.highest)
        if beyond and _possible(action, trouble, state, policy, options):
            return action
    return Action.STOP


def take(action: Action, trouble: str, state: RungState, options: Options) -> RungState:
    """State after this rung is taken."""
    state = replace(state, highest=max(state.highest, ORDER.index(action)), calm=0)
    if action is Action.CUT:
        return replace(state, cuts=state.cuts + 1)
    if action is Action.ESCALATE:
        return replace(state, escalations=state.escalations + 1)
    assert options.rollback_to is not None
    return replace(state, rollbacks=state.rollbacks + 1, last_rollback=(options.rollback_to, trouble))


def breathe(state: RungState, policy: Policy) -> RungState:
    """Count an accepted step; enough of them end the spell."""
    if state.highest < 0:
        return state
    calm = state.calm + 1
    return replace(state, calm=calm, highest=-1 if calm >= policy.calm_steps else state.highest)


def _possible(action: Action, trouble: str, state: RungState, policy: Policy, options: Options) -> bool:
    if action is Action.CUT:
        return options.cut and state.cuts < policy.max_cuts
    if action is Action.ESCALATE:
        return options.escalate_to is not None and state.escalations < policy.max_escalations
    again = state.last_rollback == (options.rollback_to, trouble)
    return options.rollback_to is not None and state.rollbacks < policy.max_rollbacks and not again


def why_refused(signals: Signals, code: Code, before: SpikeState, policy: Policy) -> str:
    """Describe why a step was refused; ``before`` is the spike test's state."""
    match code:
        case Code.LOSS_SPIKE:
            return unusual_loss(signals, before)
        case Code.GRADIENT_SPIKE:
            return unusual_norm(signals, before)
        case Code.SCALE_SEARCH:
            return f"gradients overflow at loss scale {signals.loss_scale:,.10g}; the scaler lowers it and retries"
        case Code.REPLAY_MISMATCH:
            return signals.mismatch
        case _:
            return _not_finite(signals, policy)


def unusual_loss(signals: Signals, before: SpikeState) -> str:
    """A loss beside the usual one."""
    usual = math.sinh(spread(before.losses)[0]) if before.losses else math.nan
    return f"loss {signals.loss:.4g} (median of the last {len(before.losses)} steps {usual:.4g})"


def unusual_norm(signals: Signals, before: SpikeState) -> str:
    """A gradient norm beside the usual one."""
    usual = math.exp(spread(before.norms)[0]) if before.norms else math.nan
    median = f"median of the last {len(before.norms)} steps {usual:.4g}"
    return f"grad norm {signals.grad_norm:.4g} ({median}), loss {signals.loss:.4g}"


def _not_finite(signals: Signals, policy: Policy) -> str:
    words = [f"loss is {signals.loss:.4g}"]
    if signals.bad_ranks:
        words[0] = f"rank {', '.join(map(str, signals.bad_ranks))} is bad: {words[0]}"
    if bad := [f"{name} {value:.4g}" for name, value in signals.parts.items() if not math.isfinite(value)]:
        words[0] += f" (its part {', '.join(bad)})"
    if signals.bad_count:
        words.append(_bad_gradients(signals))
    elif not math.isfinite(signals.grad_norm) and not signals.parameters:
        words.append("gradients are NaN or inf")
    elif not math.isfinite(signals.grad_norm):
        words.append(f"grad norm is {signals.grad_norm:.4g}: it overflows although each gradient is finite")
    else:
        words.append(f"gradients are finite (norm {signals.grad_norm:.4g})")
    scale = signals.loss_scale
    if scale is not None and math.isfinite(scale) and scale < policy.min_loss_scale:
        words.append(f"the loss scale has collapsed to {scale:g}")
    return "; ".join(words)


def _bad_gradients(signals: Signals) -> str:
    if signals.bad_count == signals.parameters:
        return f"all {signals.parameters} gradients are NaN or inf"
    first = ", ".join(signals.bad_parameters)
    return f"{signals.bad_count} of {signals.parameters} gradients are NaN or inf, first {first}"


NOTHING_TO_DO = Options()
"""Without snapshots, precision control or cuts, a stop follows directly after vetoes."""


@dataclass(frozen=True, slots=True)
class LadderState:
    """State of the ladder."""

    spikes: SpikeState = field(default_factory=SpikeState)
    """Windows of the spike test."""

    accepted: int = 0

    in_a_row: int = 0
    """Vetoes since the last accepted step that count against the budget."""

    in_total: int = 0
    """Vetoes of the whole run that count against the budget, minus those earned back."""

    searching: int = 0
    """Consecutive overflows while the fp16 scaler searches for its scale; not counted as vetoes."""

    rungs: RungState = field(default_factory=RungState)
    """Actions taken beyond vetoes."""

    vetoes: Mapping[str, int] = field(default_factory=dict)
    """All vetoes by code, including those of the scale search."""

    row: Row = field(default=NO_ROW, metadata=ADDED)
    """Vetoes since the last accepted step, over all rungs, for the message."""


def decide(
    signals: Signals,
    state: LadderState,
    policy: Policy,
    *,
    max_norm: float | None = None,
    verdict: Verdict | None = None,
    limit: float = math.inf,
    options: Options = NOTHING_TO_DO,
) -> tuple[Decision, LadderState]:
    """Decide on one step.

    Arguments:
        max_norm: gradient clipping norm; None for no clipping.
        verdict: what the device already decided and did; None to judge here.
        limit: log of the highest norm that the device allowed; only with ``verdict``.

    Returns:
        The decision and the new state.
    """
    if verdict is None:
        verdict, limit = spikes.examine(signals.loss, signals.grad_norm, state.spikes, policy)
    if not signals.finite:
        verdict |= Verdict.NOT_FINITE
    if signals.mismatch:
        verdict |= Verdict.MISMATCH
    after = replace(state, spikes=spikes.advance(signals.loss, signals.grad_norm, verdict, state.spikes, policy, limit))
    if not verdict:
        return _take(signals, verdict, max_norm), _accept(after, policy)
    if verdict.refuses:
        return _refuse(signals, verdict, state, after, policy, options)
    doubtful = Verdict.NEW_LEVEL in verdict and policy.mode == "protect"
    if doubtful and next_rung(Code.LEVEL_IN_DOUBT, _from_rollback(state), policy, options) is Action.ROLLBACK:
        return _doubt(signals, state, options)
    accepted = _accept(after, policy)
    if Verdict.TAKEN in verdict:
        return _take_unusual(signals, verdict, state.spikes, limit, max_norm), accepted
    return _take(signals, verdict, max_norm), accepted


def _accept(after: LadderState, policy: Policy) -> LadderState:
    accepted = after.accepted + 1
    earned = 1 if after.in_total and accepted % policy.forgive_after == 0 else 0
    return replace(
        after,
        accepted=accepted,
        in_a_row=0,
        in_total=after.in_total - earned,
        searching=0,
        rungs=breathe(after.rungs, policy),
        row=NO_ROW,
    )


def _take(signals: Signals, verdict: Verdict, max_norm: float | None) -> Decision:
    clipped = max_norm is not None and signals.grad_norm > max_norm
    action = Action.CLIP if clipped else Action.ACCEPT
    if verdict and Verdict.NEW_LEVEL in verdict:
        code, reason = Code.NEW_LEVEL, f"loss {signals.loss:.4g}, grad norm {signals.grad_norm:.4g}: a new level"
    elif clipped:
        code, reason = Code.LARGE_GRADIENT, f"grad norm {signals.grad_norm:.4g} clipped to {max_norm:g}"
    else:
        code, reason = Code.FINITE, ""
    return Decision(action=action, code=code, reason=reason, signals=signals)


def _take_unusual(
    signals: Signals, verdict: Verdict, before: SpikeState, limit: float, max_norm: float | None
) -> Decision:
    """Accept a finite spike; limit its gradient if that was unusual."""
    highest = math.exp(min(limit, 700.0)) if Verdict.GRADIENT_SPIKE in verdict else math.inf
    clipped = max_norm is not None and signals.grad_norm > max_norm
    if highest == math.inf or (max_norm is not None and max_norm <= highest):
        # Clipping is at least as strict.
        action, bounded = (Action.CLIP if clipped else Action.ACCEPT), None
    else:
        action, bounded = Action.BOUND, highest
    if bounded is not None:
        code, reason = Code.UNUSUAL_GRADIENT, f"{unusual_norm(signals, before)}; limited to {bounded:.4g}"
    elif Verdict.LOSS_SPIKE in verdict:
        code, reason = Code.UNUSUAL_LOSS, unusual_loss(signals, before)
    else:
        return _take(signals, Verdict.FINE, max_norm)
    fault = Verdict.FAULT in verdict
    return Decision(action=action, code=code, reason=reason, signals=signals, limit=bounded, fault=fault)


def _refuse(
    signals: Signals, verdict: Verdict, before: LadderState, after: LadderState, policy: Policy, options: Options
) -> tuple[Decision, LadderState]:
    code = _veto_code(signals, verdict, before, policy)
    after = replace(after, vetoes={**after.vetoes, code: after.vetoes.get(code, 0) + 1})
    reason = why_refused(signals, code, before.spikes, policy)
    if code is Code.SCALE_SEARCH:
        after = replace(after, searching=after.searching + 1)
        return Decision(action=Action.VETO, code=code, reason=reason, signals=signals), after

    row = refused_again(before.row, signals, code)
    after = replace(after, in_a_row=after.in_a_row + 1, in_total=after.in_total + 1, row=row)
    if policy.mode == "watch":
        return Decision(action=Action.VETO, code=code, reason=reason, signals=signals), after
    if policy.mode == "strict":
        return Decision(action=Action.STOP, code=Code.STRICT, reason=reason, signals=signals, why=code), after
    # Weights do not change while steps are refused, so a few tries show whether a rung helped. Finite spikes get the
    # full count: they may be a new level.
    tries = policy.patience if after.rungs.highest >= 0 and not signals.finite else policy.max_vetoes_in_a_row
    faulty = code is Code.REPLAY_MISMATCH
    if faulty:
        # Learning rate, weights and precision are not the cause: no rung would help.
        tries = min(tries, policy.patience)
    if policy.max_vetoes is not None and after.in_total > policy.max_vetoes:
        spent, action = Code.VETOES_IN_TOTAL, Action.STOP
    elif after.in_a_row > tries:
        action = Action.STOP if faulty else next_rung(code, after.rungs, policy, options)
        spent = code if faulty else Code.VETOES_IN_A_ROW
    else:
        return Decision(action=Action.VETO, code=code, reason=reason, signals=signals), after
    if spent is Code.VETOES_IN_TOTAL:
        words = total_in_words(after.vetoes, after.in_total, after.rungs.taken)
    else:
        words = row_in_words(row, after.rungs.taken)
    if action is not Action.STOP:
        rungs = take(action, code, after.rungs, options)
        after = replace(after, in_a_row=0, rungs=rungs, row=rung_taken(row, action))
    reason = f"{words}; the last: {reason}"
    return Decision(action=action, code=spent, reason=reason, signals=signals, why=code), after


def _doubt(signals: Signals, before: LadderState, options: Options) -> tuple[Decision, LadderState]:
    """Roll back at a higher level: it helps if the weights are worse; if it is the data, the level returns."""
    rungs = take(Action.ROLLBACK, Code.LEVEL_IN_DOUBT, before.rungs, options)
    after = replace(before, in_a_row=0, rungs=rungs, row=rung_taken(before.row, Action.ROLLBACK))
    reason = f"loss {signals.loss:.4g} and grad norm {signals.grad_norm:.4g} stay above their usual level"
    return Decision(action=Action.ROLLBACK, code=Code.LEVEL_IN_DOUBT, reason=reason, signals=signals), after


def _from_rollback(state: LadderState) -> RungState:
    # A learning rate cut does not help against a worse level: start at the rollback.
    return replace(state.rungs, highest=max(state.rungs.highest, ORDER.index(Action.CUT)))


def _veto_code(signals: Signals, verdict: Verdict, before: LadderState, policy: Policy) -> Code:
    if Verdict.MISMATCH in verdict:
        return Code.REPLAY_MISMATCH
    if Verdict.NOT_FINITE not in verdict:
        return Code.LOSS_SPIKE if Verdict.LOSS_SPIKE in verdict else Code.GRADIENT_SPIKE
    if not math.isfinite(signals.loss):
        return Code.LOSS_NOT_FINITE
    scale = signals.loss_scale
    settling = scale is not None and math.isfinite(scale) and scale >= policy.min_loss_scale
    if settling and before.searching < policy.scale_search:
        return Code.SCALE_SEARCH
    return Code.GRADIENT_NOT_FINITE
