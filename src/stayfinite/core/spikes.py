"""Spike test: is this loss or gradient norm far above those of the last accepted steps?

Both are compared on a compressed scale: asinh for the loss (linear near zero, logarithmic for large losses, defined
below zero), log for the gradient norm. Training noise is multiplicative, so one spread fits small and large values. The
spread is robust, from the median absolute deviation.

The policy decides what follows. If spikes are bounded, the gradient is limited to a factor of the median norm and the
step is taken. If they are refused, a value must also be well above all recently accepted ones; refused finite spikes
count as strikes, and after enough of them the level has changed and the window restarts.

Only finite samples of accepted steps enter the window, with norms as applied. ``stayfinite.measure.spikes`` is the same
test on a device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from statistics import median

from stayfinite.core.policy import Policy

MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""

CLEARANCE = 3.0
"""A spike is this many robust standard deviations above all recently accepted values."""

LEAST_SAMPLES = 2
"""With fewer samples there is nothing to compare with."""

IMPLAUSIBLE = 256.0
"""A loss this many times the run's highest usual one comes from a fault, not from unusual data."""

NEGLIGIBLE = 1e-6
"""A highest loss below this is rounding around 0, not a reference: policy-gradient losses sum to 0 by design."""

SIGNED = 1e300
"""Marks the highest loss of a run with a negative loss: multiples of it are meaningless."""


class Verdict(IntFlag):
    """Result of the tests for a step; the device computes the same bits."""

    FINE = 0
    NOT_FINITE = 1
    LOSS_SPIKE = 2
    GRADIENT_SPIKE = 4
    NEW_LEVEL = 8
    TAKEN = 16
    """A finite spike that the policy does not refuse."""
    FAULT = 32
    """A spike that is taken although its loss is implausible for any data; running statistics exclude it."""
    MISMATCH = 64
    """A re-run of the step differed. Known on the host only."""

    @property
    def refuses(self) -> bool:
        """Whether the step must not reach the weights."""
        return bool(self) and (bool(self & NEVER_TAKEN) or not self & LET_THROUGH)


SPIKE = Verdict.LOSS_SPIKE | Verdict.GRADIENT_SPIKE
LET_THROUGH = Verdict.NEW_LEVEL | Verdict.TAKEN
NEVER_TAKEN = Verdict.NOT_FINITE | Verdict.MISMATCH


@dataclass(frozen=True, slots=True)
class SpikeState:
    """State of the spike test."""

    losses: tuple[float, ...] = ()
    """Compressed losses of the last accepted steps, oldest first."""

    norms: tuple[float, ...] = ()
    """Compressed gradient norms of the last accepted steps, oldest first; for bounded steps the bound."""

    strikes: int = 0
    """Finite spikes refused since the level was last certain."""

    quiet: int = 0
    """Steps accepted since the last strike."""

    highest: float = 0.0
    """Highest loss of the run that was not a spike; 0 if none was above 0, ``SIGNED`` after a negative one."""

    factor: float | None = None
    """Allowed multiple of the median norm; None for the policy's own factor."""


def compress_loss(loss: float) -> float:
    """Compress a finite loss for comparison."""
    return math.asinh(loss)


def compress_norm(norm: float) -> float:
    """Compress a finite gradient norm for comparison; 0 becomes -inf."""
    return math.log(norm) if norm > 0 else -math.inf


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Median and median absolute deviation."""
    middle = median(values)
    return middle, median(abs(value - middle) for value in values)


def bound(values: Sequence[float], floor: float, policy: Policy) -> float:
    """Highest compressed value after ``values`` that is not a spike, if spikes are refused."""
    if len(values) < LEAST_SAMPLES:
        return math.inf
    middle, sigma = _middle_and_sigma(values, floor, policy)
    return max(middle + policy.sigmas * sigma, max(values) + CLEARANCE * sigma)


def norm_bound(loss: float, state: SpikeState, policy: Policy) -> float:
    """Highest compressed gradient norm that is not a spike, for a step with this loss."""
    if policy.spikes == "refuse":
        return bound(state.norms, policy.norm_floor, policy)
    if policy.spikes == "ignore" or len(state.norms) < LEAST_SAMPLES:
        return math.inf
    middle, sigma = _middle_and_sigma(state.norms, policy.norm_floor, policy)
    if is_implausible(loss, state):
        return middle
    return middle + max(policy.sigmas * sigma, math.log(factor_of(state, policy)))


def factor_of(state: SpikeState, policy: Policy) -> float:
    """Current allowed multiple of the median norm."""
    return policy.bound_factor if state.factor is None else state.factor


def is_implausible(loss: float, state: SpikeState) -> bool:
    """Whether no data could explain a loss this high."""
    return state.highest > NEGLIGIBLE and loss > IMPLAUSIBLE * state.highest


def limits(state: SpikeState, policy: Policy) -> dict[str, float]:
    """Loss and gradient norm above which the next step is a spike; entries without a limit are omitted."""
    found = {}
    for name, values, floor, widen in (
        ("loss", state.losses, policy.loss_floor, math.sinh),
        ("grad_norm", state.norms, policy.norm_floor, math.exp),
    ):
        highest = bound(values, floor, policy)
        # Above 700 the result would be infinite.
        if highest < 700:
            found[name] = widen(highest)
    return found


def limits_of_return(state: SpikeState, policy: Policy, *, loss: float, norm: float) -> dict[str, float]:
    """As :func:`limits`, for a re-run of a spike: half of its height still counts.

    Re-runs are rarely bitwise equal, and a step may have been a spike by a hair.
    """
    found = limits(state, policy)
    for name, values, seen, widen in (
        ("loss", state.losses, compress_loss(loss), math.sinh),
        ("grad_norm", state.norms, compress_norm(norm), math.exp),
    ):
        if name in found and math.isfinite(seen) and widen(seen) > found[name]:
            middle, _ = spread(values)
            found[name] = min(found[name], widen((middle + seen) / 2))
    return found


def examine(loss: float, norm: float, state: SpikeState, policy: Policy) -> tuple[Verdict, float]:
    """Judge a step by its numbers alone.

    Returns:
        The verdict, and the highest compressed norm allowed.
    """
    if not (math.isfinite(loss) and math.isfinite(norm)):
        return Verdict.NOT_FINITE, math.inf
    if policy.spikes == "ignore":
        return Verdict.FINE, math.inf
    verdict, limit = Verdict.FINE, math.inf
    if _above(compress_loss(loss), state.losses, policy.loss_floor, policy):
        verdict |= Verdict.LOSS_SPIKE
    size = compress_norm(norm)
    if not _surely_usual(size, loss, state, policy) and size > (limit := norm_bound(loss, state, policy)):
        verdict |= Verdict.GRADIENT_SPIKE
    if verdict and policy.spikes == "bound":
        verdict |= Verdict.TAKEN | (Verdict.FAULT if is_implausible(loss, state) else Verdict.FINE)
    elif verdict and state.strikes >= policy.level_change_after:
        verdict |= Verdict.NEW_LEVEL
    return verdict, limit


def advance(
    loss: float, norm: float, verdict: Verdict, state: SpikeState, policy: Policy, limit: float = math.inf
) -> SpikeState:
    """State after a step with this verdict. A refused step does not change the windows.

    Arguments:
        limit: highest compressed norm allowed.
    """
    size = compress_norm(norm)
    # Flag tests are slow, and most steps have no flags.
    if verdict:
        if verdict & NEVER_TAKEN:
            return state
        if verdict.refuses:
            return SpikeState(
                state.losses, state.norms, state.strikes + 1, quiet=0, highest=state.highest, factor=state.factor
            )
        if Verdict.NEW_LEVEL in verdict:
            state = SpikeState(highest=state.highest, factor=state.factor)
        if Verdict.TAKEN in verdict:
            size = min(size, limit)
    quiet = state.quiet + 1
    return SpikeState(
        losses=_admit(compress_loss(loss), state.losses, policy.window),
        norms=_admit(size, state.norms, policy.window),
        strikes=0 if quiet >= policy.window else state.strikes,
        quiet=min(quiet, policy.window),
        highest=state.highest if verdict and verdict & SPIKE else max(state.highest, SIGNED if loss < 0 else loss),
        factor=state.factor,
    )


def _surely_usual(size: float, loss: float, state: SpikeState, policy: Policy) -> bool:
    """Fast check that avoids the median; true for most steps."""
    if not state.norms:
        return True
    if policy.spikes == "refuse":
        # The bound is never below the highest accepted value.
        return size <= max(state.norms)
    return not is_implausible(loss, state) and size <= min(state.norms) + math.log(factor_of(state, policy))


def _above(value: float, values: tuple[float, ...], floor: float, policy: Policy) -> bool:
    # The bound is never below the highest accepted value, so most steps need no median.
    if not values or value <= max(values):
        return False
    return value > bound(values, floor, policy)


def _middle_and_sigma(values: Sequence[float], floor: float, policy: Policy) -> tuple[float, float]:
    middle, deviation = spread(values)
    least = floor * (policy.warmup_widening if len(values) < policy.warmup else 1.0)
    return middle, max(MAD_TO_SIGMA * deviation, least)


def _admit(value: float, values: tuple[float, ...], window: int) -> tuple[float, ...]:
    if not math.isfinite(value):
        return values
    return (*values[-(window - 1) :], value)
