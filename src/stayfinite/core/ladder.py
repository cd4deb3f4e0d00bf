"""The ladder: from the numbers of a step to what is done with it, within budgets.

A non-finite step is never accepted, whatever the count. The rungs that exist today are clip, veto and stop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stayfinite.core import spikes
from stayfinite.core.decision import Action, Code, Decision
from stayfinite.core.policy import Policy
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SpikeState, Verdict


@dataclass(frozen=True, slots=True)
class LadderState:
    """What the ladder remembers."""

    spikes: SpikeState = field(default_factory=SpikeState)
    """The windows of the spike test."""

    accepted: int = 0
    """Steps accepted so far."""

    in_a_row: int = 0
    """Vetoes since the last accepted step that count against the budget."""

    in_total: int = 0
    """Vetoes of the whole run that count against the budget, less those that accepted steps have earned back."""

    searching: int = 0
    """Overflows in a row while the fp16 scaler looks for its scale; these do not count."""

    vetoes: Mapping[str, int] = field(default_factory=dict)
    """All vetoes so far by code, those of the scale search among them."""


def decide(
    signals: Signals,
    state: LadderState,
    policy: Policy,
    *,
    max_norm: float | None = None,
    verdict: Verdict | None = None,
) -> tuple[Decision, LadderState]:
    """Decide on one step.

    Arguments:
        signals: what was measured.
        state: what is remembered of the steps before.
        policy: the settings.
        max_norm: the norm that gradients are clipped to, if they are.
        verdict: what a device has already decided and acted upon; None to judge here.

    Returns:
        The decision and the state after it.
    """
    if verdict is None:
        verdict = spikes.examine(signals.loss, signals.grad_norm, state.spikes, policy)
    if not signals.finite:
        verdict |= Verdict.NOT_FINITE
    after = replace(state, spikes=spikes.advance(signals.loss, signals.grad_norm, verdict, state.spikes, policy))
    if not verdict.refuses:
        return _accept(signals, verdict, after, policy, max_norm)
    return _refuse(signals, verdict, state, after, policy)


def _accept(
    signals: Signals, verdict: Verdict, after: LadderState, policy: Policy, max_norm: float | None
) -> tuple[Decision, LadderState]:
    accepted = after.accepted + 1
    earned = 1 if after.in_total and accepted % policy.forgive_after == 0 else 0
    after = replace(after, accepted=accepted, in_a_row=0, in_total=after.in_total - earned, searching=0)
    clipped = max_norm is not None and signals.grad_norm > max_norm
    action = Action.CLIP if clipped else Action.ACCEPT
    if Verdict.NEW_LEVEL in verdict:
        reason = (
            f"loss {signals.loss:.4g}, gradient norm {signals.grad_norm:.4g}: {policy.level_change_after} such steps "
            "were refused lately, so this is taken for a new level"
        )
        return Decision(action=action, code=Code.NEW_LEVEL, reason=reason, signals=signals), after
    if clipped:
        reason = f"gradient norm {signals.grad_norm:.4g} clipped to {max_norm:g}"
        return Decision(action=action, code=Code.LARGE_GRADIENT, reason=reason, signals=signals), after
    return Decision(action=action, code=Code.FINITE, reason="", signals=signals), after


def _refuse(
    signals: Signals, verdict: Verdict, before: LadderState, after: LadderState, policy: Policy
) -> tuple[Decision, LadderState]:
    code = _veto_code(signals, verdict, before, policy)
    after = replace(after, vetoes={**after.vetoes, code: after.vetoes.get(code, 0) + 1})
    reason = _why(signals, code, before, policy)
    if code is Code.SCALE_SEARCH:
        after = replace(after, searching=after.searching + 1)
        return Decision(action=Action.VETO, code=code, reason=reason, signals=signals), after

    after = replace(after, in_a_row=after.in_a_row + 1, in_total=after.in_total + 1)
    if policy.mode == "watch":
        return Decision(action=Action.VETO, code=code, reason=reason, signals=signals), after
    if policy.mode == "strict":
        return Decision(action=Action.STOP, code=Code.STRICT, reason=reason, signals=signals), after
    spent: Code | None = None
    if after.in_a_row > policy.max_vetoes_in_a_row:
        spent = Code.VETOES_IN_A_ROW
    elif policy.max_vetoes is not None and after.in_total > policy.max_vetoes:
        spent = Code.VETOES_IN_TOTAL
    if spent is None:
        return Decision(action=Action.VETO, code=code, reason=reason, signals=signals), after
    tried = ", ".join(f"{count} x {name}" for name, count in after.vetoes.items())
    count = f"{after.in_a_row} steps in a row" if spent is Code.VETOES_IN_A_ROW else f"{after.in_total} steps in all"
    reason = f"{count} were refused ({tried}); the last: {reason}"
    return Decision(action=Action.STOP, code=spent, reason=reason, signals=signals), after


def _veto_code(signals: Signals, verdict: Verdict, before: LadderState, policy: Policy) -> Code:
    if Verdict.NOT_FINITE not in verdict:
        return Code.LOSS_SPIKE if Verdict.LOSS_SPIKE in verdict else Code.GRADIENT_SPIKE
    if not math.isfinite(signals.loss):
        return Code.LOSS_NOT_FINITE
    scale = signals.loss_scale
    settling = scale is not None and math.isfinite(scale) and scale >= policy.min_loss_scale
    if settling and before.searching < policy.scale_search:
        return Code.SCALE_SEARCH
    return Code.GRADIENT_NOT_FINITE


def _why(signals: Signals, code: Code, before: LadderState, policy: Policy) -> str:
    match code:
        case Code.LOSS_SPIKE:
            usual = math.sinh(spikes.spread(before.spikes.losses)[0]) if before.spikes.losses else math.nan
            return f"loss {signals.loss:.4g} where the last {len(before.spikes.losses)} steps had about {usual:.4g}"
        case Code.GRADIENT_SPIKE:
            usual = math.exp(spikes.spread(before.spikes.norms)[0]) if before.spikes.norms else math.nan
            return (
                f"gradient norm {signals.grad_norm:.4g} where the last {len(before.spikes.norms)} steps had about "
                f"{usual:.4g} (loss {signals.loss:.4g})"
            )
        case Code.SCALE_SEARCH:
            return f"gradients overflow at loss scale {signals.loss_scale:g}; the scaler goes down and tries again"
        case _:
            return _what_is_not_finite(signals, policy)


def _what_is_not_finite(signals: Signals, policy: Policy) -> str:
    words = [f"loss is {signals.loss:.4g}"]
    if bad := [f"{name} {value:.4g}" for name, value in signals.parts.items() if not math.isfinite(value)]:
        words[0] += f" (its part {', '.join(bad)})"
    if signals.bad_count:
        first = ", ".join(signals.bad_parameters)
        words.append(f"{signals.bad_count} of {signals.parameters} gradients have no finite norm, first {first}")
    elif not math.isfinite(signals.grad_norm):
        words.append(f"gradient norm is {signals.grad_norm:.4g} though every gradient is finite: too large to square")
    else:
        words.append(f"gradients are finite (norm {signals.grad_norm:.4g})")
    scale = signals.loss_scale
    if scale is not None and math.isfinite(scale) and scale < policy.min_loss_scale:
        words.append(f"the loss scale has collapsed to {scale:g}")
    return "; ".join(words)
