"""Faults of the weights: already bad, or diverged by an update."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite.autopsy.conclusions.conclusion import Conclusion, Evidence, judge_of
from stayfinite.autopsy.steps.batch_parts import batch_size
from stayfinite.autopsy.tracing.origin import UNNAMED
from stayfinite.autopsy.worlds.worlds import too_large

BEFORE: tuple[str, ...] = ("previous_update_undone", "good_weights")
"""Worlds with earlier weights."""

SECOND_MOMENTS = ("exp_avg_sq", "square_avg", "sum")
"""Names of the second moment in Adam, RMSprop and Adagrad, whose root is the divisor."""


def written_by_optimizer(e: Evidence, leaf: str, *, proved: bool) -> Conclusion | None:
    """A parameter is not finite, and the optimizer's settings explain it.

    Arguments:
        proved: whether the step is good with earlier weights.
    """
    optimizer = e.materials.optimizer
    if optimizer is None:
        return None
    setting: dict[str, Any] = {}
    covers = BEFORE
    if rates := _broken_rates(optimizer):
        cause, sure, unsure = "lr-schedule-bug", 0.95, 0.9
        why = f"the learning rate is {rates[0]}, and an update with it corrupted {leaf}"
        fix = "fix the schedule (it may divide by 0 steps), then return to the last good checkpoint"
    elif _divided_by_zero(optimizer, e.readings.step.model, leaf):
        cause, sure, unsure, setting = "adam-eps-underflow", 0.95, 0.9, {"eps": 1e-8}
        why = f"the optimizer's eps is 0: where a second moment of {leaf} is 0, the update is 0/0"
        fix = "set the optimizer's eps (1e-8 in fp32), and return to the last good checkpoint"
    elif _eps_is_zero_in_fp16(optimizer):
        cause, sure, unsure, setting, covers = "adam-eps-underflow", 0.95, 0.85, {"eps": 1e-4}, ()
        why = "the optimizer's eps rounds to 0 in fp16 weights: with a second moment of 0 the update is 0/0"
        fix = "keep fp32 master weights, or set eps to 1e-4 for fp16 weights"
    elif _trains_half(optimizer):
        cause, sure, unsure, covers = "pure-fp16-weights", 0.85, 0.7, ()
        why = f"{leaf} is NaN or inf before the step; fp16 weights are updated without fp32 master weights"
        fix = "load the weights in fp32 and train under autocast, or use bf16"
    else:
        return None
    confidence = sure if proved else unsure
    return Conclusion(
        cause=cause, confidence=confidence, why=why, fix=fix, setting=setting, worlds=BEFORE, covers=covers
    )


def _eps_is_zero_in_fp16(optimizer: Optimizer) -> bool:
    for group in optimizer.param_groups:
        halves = any(parameter.dtype is torch.float16 for parameter in group["params"])
        eps = group.get("eps")
        if halves and isinstance(eps, int | float) and float(torch.tensor(float(eps), dtype=torch.float16)) == 0.0:
            return True
    return False


def _divided_by_zero(optimizer: Optimizer, model: nn.Module, leaf: str) -> bool:
    """Whether a parameter is bad where its second moment is 0 and eps is 0."""
    parameter = dict(model.named_parameters()).get(leaf)
    if parameter is None:
        return False
    for group in optimizer.param_groups:
        if group.get("eps") != 0 or not any(each is parameter for each in group["params"]):
            continue
        states = optimizer.state.get(parameter, {})
        moments = [states[name] for name in SECOND_MOMENTS if isinstance(states.get(name), Tensor)]
        bad = ~parameter.detach().isfinite()
        return any(each.shape == bad.shape and bool((each[bad] == 0).any()) for each in moments)
    return False


def _broken_rates(optimizer: Optimizer) -> list[float]:
    rates = [float(rate) for group in optimizer.param_groups if (rate := group.get("lr")) is not None]
    return [rate for rate in rates if not math.isfinite(rate)]


def _trains_half(optimizer: Optimizer) -> bool:
    return any(p.dtype is torch.float16 for group in optimizer.param_groups for p in group["params"])


EXPLODED = 1e6
"""Weights this large are not learned."""

GROWN = 1e12
"""Values this large have grown on their way through the model."""

SLOWER_GROWTH = (
    "limit growth across layers or time steps: normalization, tanh, residual branches that start small, smaller "
    "initial weights"
)


def bad_weights(e: Evidence) -> Conclusion | None:
    """A parameter or buffer is not finite before the step."""
    origin = e.readings.origin
    if origin is None or not origin.leaf or origin.leaf.startswith("batch"):
        return None
    proved = any(e.good(world) for world in BEFORE)
    if (written := written_by_optimizer(e, origin.leaf, proved=proved)) is not None:
        return written
    if origin.leaf == UNNAMED:
        return Conclusion(
            cause="nan-weights",
            confidence=0.85,
            why=(
                f"a tensor that {e.readings.reader} reads is NaN or inf; it is not a parameter, a buffer or in the "
                "batch"
            ),
            fix="find where forward gets it: class weights, a mask, precomputed statistics",
            worlds=("leaf_mended",),
        )
    undone = "; the last update wrote it" if e.good("previous_update_undone") else ""
    return Conclusion(
        cause="nan-weights",
        confidence=0.97 if proved else 0.9,
        why=f"{origin.leaf} holds NaN or inf before the step{undone}",
        fix=(
            "return to the last good checkpoint (`stayfinite scan` names it) and find the update that wrote it; "
            "stayfinite.Guard refuses such updates"
        ),
        worlds=(*BEFORE, "leaf_mended"),
        covers=BEFORE,
    )


def spike(e: Evidence) -> Conclusion | None:
    """A finite spike: caused by the batch, or by the update before it."""
    if not e.finite_spike:
        return None
    same = e.outcomes["same"]
    few = len(e.rows) * 2 <= (batch_size(e.readings.step.batch) or 0)  # a majority of rows is not an outlier
    if e.rows and few:
        return Conclusion(
            cause="toxic-batch",
            confidence=0.9 if e.bad("good_weights") else 0.8,
            why=(
                f"{e.in_rows(e.rows, '', '')} drive{'s' if len(e.rows) == 1 else ''} the spike: loss {same.loss:.4g}, "
                f"without {e.outcomes['rows_removed'].loss:.4g}"
            ),
            fix="skip the batch and inspect these rows",
            setting={"rows": e.rows},
            worlds=("rows_removed",),
        )
    if e.bad("good_weights"):
        return Conclusion(
            cause="toxic-batch",
            confidence=0.75,
            why=f"the batch also spikes on known-good weights (loss {e.outcomes['good_weights'].loss:.4g})",
            fix="skip the batch and inspect its rows",
        )
    return driven_off(e)


def driven_off(e: Evidence) -> Conclusion | None:
    """The step is good with earlier weights."""
    world = next((world for world in BEFORE if e.good(world)), None)
    if world is None:
        return None
    words = "with the last update undone" if world == "previous_update_undone" else "on the last known-good weights"
    return Conclusion(
        cause="lr-too-high",
        confidence=0.9,
        why=f"{words} the same batch gives loss {e.outcomes[world].loss:.4g}: the update is the cause",
        fix="lower the learning rate, add warmup, clip gradients at 1.0",
        worlds=(world,),
    )


@judge_of(
    "exploding-gradient", 0.85,
    f"normalize the loss, scale inputs and targets to about unit size, {SLOWER_GROWTH}",
)  # fmt: skip
def too_large_to_square(e: Evidence) -> str | bool:
    """Finite gradients with an infinite norm, also with earlier weights."""
    same = e.outcomes.get("same")
    if same is None or not too_large(same, e.materials):
        return False
    sizes = f"largest {same.largest:.3g}, loss {same.loss:.4g}"
    return f"every gradient is finite, but their squares overflow fp32 ({sizes})"


@judge_of("exploding-gradient", 0.7, SLOWER_GROWTH)
def grown(e: Evidence) -> str | bool:
    """Values that grow across layers or time steps until fp32 overflows, with small weights."""
    r = e.readings
    what = f"{'gradients' if r.in_backward else 'values'} grow across layers or time steps, up to {r.largest_input:.3g}"
    why = f"{what}, until {r.operator} in {r.place} overflows {r.dtype}"
    return r.overflowed and r.dtype in ("float32", "bfloat16") and r.largest_input >= GROWN and why


@judge_of(
    "lr-too-high", 0.75, "return to a good checkpoint, lower the learning rate, add warmup, clip gradients at 1.0"
)
def exploded(e: Evidence) -> str | bool:
    """Finite but exploded weights, with nothing to go back to."""
    named = e.readings.step.model.named_parameters()
    sizes = ((float(p.detach().abs().amax()), name) for name, p in named if p.numel())
    largest, name = max(sizes, default=(0.0, "")) if e.readings.overflowed or e.finite_spike else (0.0, "")
    found = math.isfinite(largest) and largest >= EXPLODED
    return found and f"{name} reaches {largest:.3g}: the weights exploded before this step"
