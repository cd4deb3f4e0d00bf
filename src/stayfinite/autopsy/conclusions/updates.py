"""Weights corrupted by an update: evidence in the optimizer's settings and state."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite.autopsy.conclusions.conclusion import Conclusion, Evidence

BEFORE = ("previous_update_undone", "good_weights")
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
    if rates := _broken_rates(optimizer):
        return Conclusion(
            cause="lr-schedule-bug",
            confidence=0.95 if proved else 0.9,
            why=f"the learning rate is {rates[0]}, and an update with it corrupted {leaf}",
            fix="fix the schedule (it may divide by 0 steps), then return to the last good checkpoint",
            worlds=BEFORE,
            covers=BEFORE,
        )
    if _divided_by_zero(optimizer, e.readings.step.model, leaf):
        return Conclusion(
            cause="adam-eps-underflow",
            confidence=0.95 if proved else 0.9,
            why=f"the optimizer's eps is 0: where a second moment of {leaf} is 0, the update is 0/0",
            fix="set the optimizer's eps (1e-8 in fp32), and return to the last good checkpoint",
            setting={"eps": 1e-8},
            worlds=BEFORE,
            covers=BEFORE,
        )
    if _eps_is_zero_in_fp16(optimizer):
        return Conclusion(
            cause="adam-eps-underflow",
            confidence=0.95 if proved else 0.85,
            why="the optimizer's eps rounds to 0 in fp16 weights: with a second moment of 0 the update is 0/0",
            fix="keep fp32 master weights, or set eps to 1e-4 for fp16 weights",
            setting={"eps": 1e-4},
            worlds=BEFORE,
        )
    if _trains_half(optimizer):
        return Conclusion(
            cause="pure-fp16-weights",
            confidence=0.85 if proved else 0.7,
            why=f"{leaf} is NaN or inf before the step; fp16 weights are updated without fp32 master weights",
            fix="load the weights in fp32 and train under autocast, or use bf16",
            worlds=BEFORE,
        )
    return None


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
