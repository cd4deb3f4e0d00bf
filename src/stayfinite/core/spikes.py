"""The spike test: is this loss, or this gradient norm, far above what the last accepted steps were like?

Both numbers are compared on a compressed scale: the loss by asinh (like a logarithm for large losses, linear near
zero, and meaningful below it), the gradient norm by its logarithm. Noise in training is multiplicative, so that one
spread fits small and large values there. The spread is robust: it comes from the median absolute deviation.

What a spike means is the policy's choice. Where spikes are bounded, a gradient is limited to a factor over the median
norm, and the step is taken. Where they are refused, a value also has to lie well above everything accepted lately;
finite spikes are counted as strikes, and when they keep coming, the level has changed and the window starts anew.

Only finite samples of steps that were taken enter the window, norms as they were applied. ``stayfinite.measure.spikes``
is the same test on a device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag

from stayfinite.core.policy import Policy

MAD_TO_SIGMA = 1.4826
"""The median absolute deviation of a normal distribution times this is its standard deviation."""

CLEARANCE = 3.0
"""A spike lies so many robust standard deviations above everything that was accepted lately."""

LEAST_SAMPLES = 2
"""With fewer samples than this there is nothing to compare with."""

IMPLAUSIBLE = 256.0
"""A loss this many times the highest usual one of the run comes from a fault, not from unusual data."""

NEGLIGIBLE = 1e-6
"""A highest loss below this is the rounding of a 0, and no measure: losses of policy gradients sum to 0 by design."""

SIGNED = 1e300
"""Stands for the highest loss of a run that has had one below 0: there no multiple of it says anything."""


class Verdict(IntFlag):
    """What the tests said of a step; the device computes the same bits."""

    FINE = 0
    NOT_FINITE = 1
    LOSS_SPIKE = 2
    GRADIENT_SPIKE = 4
    NEW_LEVEL = 8
    TAKEN = 16
    """A finite spike that the policy does not refuse."""
    FAULT = 32
    """One that is taken though no data could explain its loss; running statistics do not take it in."""
    MISMATCH = 64
    """Run again, the step came out otherwise. Known on the host alone."""

    @property
    def refuses(self) -> bool:
        """Whether the step must be kept from the weights."""
        return bool(self) and (bool(self & NEVER_TAKEN) or not self & LET_THROUGH)


SPIKE = Verdict.LOSS_SPIKE | Verdict.GRADIENT_SPIKE
LET_THROUGH = Verdict.NEW_LEVEL | Verdict.TAKEN
NEVER_TAKEN = Verdict.NOT_FINITE | Verdict.MISMATCH


@dataclass(frozen=True, slots=True)
class SpikeState:
    """What the spike test remembers."""

    losses: tuple[float, ...] = ()
    """Compressed losses of the last accepted steps, oldest first."""

    norms: tuple[float, ...] = ()
    """Compressed gradient norms of the last accepted steps, oldest first; of bounded ones the bound."""

    strikes: int = 0
    """Finite spikes refused since the level was last beyond doubt."""

    quiet: int = 0
    """Steps accepted since the last strike."""

    highest: float = 0.0
    """The highest loss of the run that was no spike; 0 while there was none above it, ``SIGNED`` after one below 0."""

    factor: float | None = None
    """What a gradient may be over the median norm; None for the policy's own factor."""


def compress_loss(loss: float) -> float:
    """A finite loss on the scale that it is compared on."""
    return math.asinh(loss)


def compress_norm(norm: float) -> float:
    """A finite gradient norm on the scale that it is compared on; a norm of 0 says nothing and becomes -inf."""
    return math.log(norm) if norm > 0 else -math.inf


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Median and median absolute deviation."""
    middle = _median(sorted(values))
    return middle, _median(sorted(abs(value - middle) for value in values))


def bound(values: Sequence[float], floor: float, policy: Policy) -> float:
    """The highest compressed value that is not a spike after ``values``, where spikes are refused."""
    if len(values) < LEAST_SAMPLES:
        return math.inf
    middle, sigma = _middle_and_sigma(values, floor, policy)
    return max(middle + policy.sigmas * sigma, max(values) + CLEARANCE * sigma)


def norm_bound(loss: float, state: SpikeState, policy: Policy) -> float:
    """The highest compressed gradient norm of a step with this loss that is not a spike."""
    if policy.spikes == "refuse":
        return bound(state.norms, policy.norm_floor, policy)
    if policy.spikes == "ignore" or len(state.norms) < LEAST_SAMPLES:
        return math.inf
    middle, sigma = _middle_and_sigma(state.norms, policy.norm_floor, policy)
    if is_implausible(loss, state):
        return middle
    return middle + max(policy.sigmas * sigma, math.log(factor_of(state, policy)))


def factor_of(state: SpikeState, policy: Policy) -> float:
    """What a gradient may be over the median norm at present."""
    return policy.bound_factor if state.factor is None else state.factor


def is_implausible(loss: float, state: SpikeState) -> bool:
    """Whether a loss is beyond anything that data could explain."""
    return state.highest > NEGLIGIBLE and loss > IMPLAUSIBLE * state.highest


def limits(state: SpikeState, policy: Policy) -> dict[str, float]:
    """The loss and the gradient norm above which a step would be a spike now; what has no limit is left out."""
    found = {}
    for name, values, floor, widen in (
        ("loss", state.losses, policy.loss_floor, math.sinh),
        ("grad_norm", state.norms, policy.norm_floor, math.exp),
    ):
        highest = bound(values, floor, policy)
        # Beyond 700 the number itself would be infinite.
        if highest < 700:
            found[name] = widen(highest)
    return found


def limits_of_return(state: SpikeState, policy: Policy, *, loss: float, norm: float) -> dict[str, float]:
    """As :func:`limits`, for a spike that is run again: with half of its height it is still there.

    What is run again is seldom the same to the last bit, and a step may have been a spike by a hair.
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
        The verdict, and the highest compressed norm that the step was allowed.
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
    """The state after a step with this verdict. A refused step leaves the windows as they were.

    Arguments:
        loss: of the step.
        norm: its gradient norm.
        verdict: what was said of it.
        state: before it.
        policy: the settings.
        limit: the highest compressed norm that it was allowed.
    """
    size = compress_norm(norm)
    # Flags are slow to ask, and most steps have none.
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
    """Whether a norm needs no median to be known as usual; most do not."""
    if not state.norms:
        return True
    if policy.spikes == "refuse":
        # The bound never lies below the highest accepted value.
        return size <= max(state.norms)
    return not is_implausible(loss, state) and size <= min(state.norms) + math.log(factor_of(state, policy))


def _above(value: float, values: tuple[float, ...], floor: float, policy: Policy) -> bool:
    # The bound never lies below the highest accepted value, so most steps need no median.
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


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
