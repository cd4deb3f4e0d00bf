"""Reasons for a refusal or limit, as sentences for people."""

from __future__ import annotations

import math

from stayfinite.core.decision import Code
from stayfinite.core.policy import Policy
from stayfinite.core.rungs import RungState
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import SpikeState, spread


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


def rungs_taken(rungs: RungState) -> str:
    """List actions beyond vetoes; starts with a comma, empty if none."""
    taken = {"cut": rungs.cuts, "rollback": rungs.rollbacks, "escalation": rungs.escalations}
    return "".join(f", {count} x {name}" for name, count in taken.items() if count)


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
        words.append(f"grad norm is {signals.grad_norm:.4g}: gradients are finite, but their squares overflow")
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
