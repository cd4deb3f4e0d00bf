"""Trends: steps that are acceptable one by one, but together show a failing training.

Divergence, a loss stuck at 0 or at one value, gradients of exactly 0, a learning rate of 0, parameters without a
gradient. Each is reported once, and again only after it went away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from stayfinite.core.decision import Decision
from stayfinite.core.finding import Finding
from stayfinite.core.policy import Policy
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import MAD_TO_SIGMA, spread

LEAST_RISE = 0.1
"""Rise over the best level, as a share of it, before rising windows count as a divergence."""

NOISE_MARGIN = 8.0
"""The same in standard errors of a window's median; half of it within the rising windows."""

STEADY = 0.1
"""Minimum share of the rise in each window: a single jump is a new level, not a divergence."""

OF_POLICY = frozenset(("advantage_mean", "advantage_std", "equal_groups", "ratio_mean", "ratio_max", "clipped"))
"""Signals that only policy-gradient losses have."""


@dataclass(frozen=True, slots=True)
class TrendState:
    """State of the trend tests."""

    last_loss: float | None = None
    same_loss: int = 0
    zero_loss: int = 0
    zero_norm: int = 0
    zero_lr: int = 0
    silent: int = 0
    """Bit mask of parameters without a gradient in all of the last ``silent_for`` steps."""
    silent_for: int = 0
    current: tuple[float, ...] = ()
    """Losses of the current window."""
    medians: tuple[float, ...] = ()
    """Median losses of the last full windows, oldest first."""
    best: float | None = None
    """Lowest median of any full window."""
    reported: frozenset[str] = frozenset()
    """Causes that were reported and still hold."""


def follow(decision: Decision, state: TrendState, policy: Policy) -> tuple[tuple[Finding, ...], TrendState]:
    """Process an accepted step. Refused and non-finite ones say nothing about trends.

    Returns:
        New findings and the new state.
    """
    signals = decision.signals
    if decision.refused or not signals.finite:
        return (), state
    state, noise = _count(signals, state, policy)
    judged = (test(signals, state, noise, policy) for test in _TESTS)
    holding = {finding.cause: finding for finding in judged if finding is not None}
    fresh = tuple(finding for cause, finding in holding.items() if cause not in state.reported)
    # A rising loss is judged only at the end of a window; in between the last answer holds.
    standing = state.reported & {"loss-diverging"} if state.current else frozenset()
    return fresh, replace(state, reported=frozenset(holding) | standing)


def forget_levels(state: TrendState) -> TrendState:
    """Start a new phase: earlier losses say nothing about a divergence."""
    return replace(state, current=(), medians=(), best=None)


def _count(signals: Signals, state: TrendState, policy: Policy) -> tuple[TrendState, float]:
    current = (*state.current, signals.loss)
    medians, best, noise = state.medians, state.best, 0.0
    if len(current) >= policy.trend_steps:
        middle, deviation = spread(current)
        # The standard error of a median is about 1.25 times that of a mean.
        noise = 1.25 * MAD_TO_SIGMA * deviation / math.sqrt(len(current))
        medians = (*medians[-policy.trend_windows :], middle)
        best = middle if best is None else min(best, middle)
        current = ()
    renewed = state.silent_for >= policy.silent_steps
    taught = not _equal_rewards(signals)
    silent = signals.silent if renewed or not state.silent_for else state.silent & signals.silent
    after = TrendState(
        last_loss=signals.loss,
        same_loss=state.same_loss + 1 if taught and signals.loss == state.last_loss else 1,
        zero_loss=state.zero_loss + 1 if taught and signals.loss == 0 else 0,
        zero_norm=state.zero_norm + 1 if taught and signals.grad_norm == 0 else 0,
        zero_lr=state.zero_lr + 1 if signals.lr == 0 else 0,
        silent=silent if taught else state.silent,
        silent_for=state.silent_for if not taught else 1 if renewed else state.silent_for + 1,
        current=current,
        medians=medians,
        best=best,
        reported=state.reported,
    )
    return after, noise


def _of_policy(signals: Signals) -> bool:
    """Whether this is a policy-gradient loss, judging by its signals."""
    return not OF_POLICY.isdisjoint(signals.named)


def _equal_rewards(signals: Signals) -> bool:
    """Whether all rewards in each group are equal, which implies a loss and gradient of 0."""
    return signals.named.get("equal_groups", 0.0) >= 1 or signals.named.get("advantage_std") == 0


def _diverging(signals: Signals, state: TrendState, noise: float, policy: Policy) -> Finding | None:
    medians = state.medians[-policy.trend_windows :]
    if _of_policy(signals):
        return None  # its level means nothing; the reward does
    if state.current or len(medians) < policy.trend_windows or state.best is None:
        return None
    climb, rise = medians[-1] - medians[0], medians[-1] - state.best
    steadily = climb > 0 and all(later - earlier > STEADY * climb for earlier, later in pairwise(medians))
    beyond_noise = climb >= NOISE_MARGIN / 2 * noise and rise >= NOISE_MARGIN * noise
    if not steadily or not beyond_noise or rise < LEAST_RISE * abs(state.best):
        return None
    return _finding(
        "SF215", "loss-diverging", signals,
        f"the loss has risen over the last {policy.trend_windows} windows of {policy.trend_steps} steps",
        (f"median losses {', '.join(f'{median:.4g}' for median in medians)}", f"best window {state.best:.4g}"),
        "lower the learning rate or return to a checkpoint from before the rise; a new phase may explain it",
    )  # fmt: skip


def _collapsed(signals: Signals, state: TrendState, _noise: float, policy: Policy) -> Finding | None:
    if _of_policy(signals) and state.zero_norm < policy.zero_steps:
        # Advantages in a group sum to 0, and so does the loss, but not its gradient.
        return None
    if state.zero_loss >= policy.zero_steps:
        seen = f"loss exactly 0 for {state.zero_loss} steps"
    elif state.same_loss >= policy.constant_steps:
        seen = f"loss exactly {signals.loss:.6g} for {state.same_loss} steps"
    else:
        return None
    return _finding(
        "SF216", "loss-collapse", signals, "the loss is constant",
        (seen, f"gradient norm {signals.grad_norm:.4g}"),
        "check for fully masked labels, a filtered or clamped loss, outputs that ignore the input",
    )  # fmt: skip


def _no_gradient(signals: Signals, state: TrendState, _noise: float, policy: Policy) -> Finding | None:
    if state.zero_norm < policy.zero_steps:
        return None
    return _finding(
        "SF411", "zero-gradient", signals, "every gradient is exactly zero",
        (f"gradient norm exactly 0 for {state.zero_norm} steps, loss {signals.loss:.4g}",),
        "check for a detached or clamped loss, masked labels, frozen parameters, or fp16 underflow",
    )  # fmt: skip


def _no_learning_rate(signals: Signals, state: TrendState, _noise: float, policy: Policy) -> Finding | None:
    if state.zero_lr < policy.lr_zero_steps:
        return None
    return _finding(
        "SF202", "lr-zero", signals, "the learning rate is 0",
        (f"learning rate 0 for {state.zero_lr} steps",),
        "set a learning rate, or fix the schedule's warmup and total steps",
    )  # fmt: skip


def _silent(signals: Signals, state: TrendState, _noise: float, policy: Policy) -> Finding | None:
    count = state.silent.bit_count()
    already = "unused-parameters" in state.reported
    if not already and state.silent_for < policy.silent_steps:
        return None
    if not signals.parameters or count / signals.parameters < policy.silent_share:
        return None
    return _finding(
        "SF404", "unused-parameters", signals, f"{count} of {signals.parameters} parameters get no gradient",
        (f"gradient None or exactly 0 in each of the last {state.silent_for} steps",),
        "freeze them or use them in the loss; the summary at close names them",
    )  # fmt: skip


_TESTS: tuple[Callable[[Signals, TrendState, float, Policy], Finding | None], ...] = (
    _diverging,
    _collapsed,
    _no_gradient,
    _no_learning_rate,
    _silent,
)


def _finding(code: str, cause: str, signals: Signals, title: str, evidence: tuple[str, ...], fix: str) -> Finding:
    return Finding(
        code=code, cause=cause, severity="warning", confidence=0.8, where=f"step {signals.step}",
        title=title, evidence=evidence, fix=fix,
    )  # fmt: skip
