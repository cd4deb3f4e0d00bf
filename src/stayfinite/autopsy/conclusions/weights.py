"""Faults of the weights: bad already, or driven off by an update."""

from __future__ import annotations

import math

import torch
from torch.optim import Optimizer

from stayfinite.autopsy.conclusions.conclusion import Conclusion, Evidence, in_rows

EXPLODED = 1e6
"""Weights of this size are not learnt."""

BEFORE = ("previous_update_undone", "good_weights")
"""Worlds with earlier weights."""


def bad_weights(e: Evidence) -> Conclusion | None:
    """A parameter or a buffer is not finite before the step begins."""
    origin = e.readings.origin
    if origin is None or not origin.leaf or origin.leaf.startswith("batch"):
        return None
    proved = any(e.good(world) for world in BEFORE)
    optimizer = e.materials.optimizer
    if optimizer is not None and _eps_is_zero(optimizer):
        return Conclusion(
            cause="adam-eps-underflow",
            confidence=0.95 if proved else 0.85,
            why="the weights are in fp16, where the optimizer's eps is 0: with a second moment of 0 the update is 0/0",
            fix="keep fp32 master weights, or set eps to 1e-4 for fp16 weights",
            setting={"eps": 1e-4},
            worlds=BEFORE,
        )
    if optimizer is not None and _trains_half(optimizer):
        return Conclusion(
            cause="pure-fp16-weights",
            confidence=0.85 if proved else 0.7,
            why=f"{origin.leaf} is not finite before the step, and fp16 weights are updated without a master copy",
            fix="load the weights in fp32 and train under autocast, or use bf16",
            worlds=BEFORE,
        )
    undone = "; the last update put it there" if e.good("previous_update_undone") else ""
    return Conclusion(
        cause="nan-weights",
        confidence=0.97 if proved else 0.9,
        why=f"{origin.leaf} holds a NaN or an infinity before the step begins{undone}",
        fix="go back to the last good checkpoint (`stayfinite scan` names it) and find the update that wrote it; "
        "stayfinite.Guard keeps bad steps from the weights",
        worlds=(*BEFORE, "leaf_mended"),
        covers=BEFORE,
    )


def spike(e: Evidence) -> Conclusion | None:
    """A finite step far above the others: the batch, or the update before it."""
    same = e.outcomes.get("same")
    if same is None or not same.finite or e.materials.spike_limit is None:
        return None
    if e.rows:
        return Conclusion(
            cause="toxic-batch",
            confidence=0.9 if e.bad("good_weights") else 0.8,
            why=f"{in_rows(e.rows, '', '')} drive{'s' if len(e.rows) == 1 else ''} the spike: otherwise the loss is "
            f"{e.outcomes['rows_removed'].loss:.4g} instead of {same.loss:.4g}",
            fix="skip the batch and look at these rows",
            setting={"rows": e.rows},
            worlds=("rows_removed",),
        )
    if e.bad("good_weights"):
        return Conclusion(
            cause="toxic-batch",
            confidence=0.75,
            why=f"on known-good weights this batch spikes as well (loss {e.outcomes['good_weights'].loss:.4g})",
            fix="skip the batch and look at its rows",
        )
    return driven_off(e)


def driven_off(e: Evidence) -> Conclusion | None:
    """With earlier weights the step is good."""
    world = next((world for world in BEFORE if e.good(world)), None)
    if world is None:
        return None
    words = "with the last update undone" if world == "previous_update_undone" else "on the last known-good weights"
    return Conclusion(
        cause="lr-too-high",
        confidence=0.9,
        why=f"{words} the same batch gives a loss of {e.outcomes[world].loss:.4g}: the update did it",
        fix="lower the learning rate, add warmup, clip gradients at 1.0",
        worlds=(world,),
    )


def exploded(e: Evidence) -> Conclusion | None:
    """Finite weights of a size that no training gives them, and nothing to go back to."""
    if not e.readings.overflowed:
        return None
    largest, name = max(
        ((float(p.detach().abs().amax()), name) for name, p in e.readings.step.model.named_parameters() if p.numel()),
        default=(0.0, ""),
    )
    if not math.isfinite(largest) or largest < EXPLODED:
        return None
    return Conclusion(
        cause="lr-too-high",
        confidence=0.75,
        why=f"{name} reaches {largest:.3g}: the weights have exploded before this step",
        fix="go back to a good checkpoint, lower the learning rate, add warmup, clip gradients at 1.0",
    )


def _eps_is_zero(optimizer: Optimizer) -> bool:
    for group in optimizer.param_groups:
        halves = any(parameter.dtype is torch.float16 for parameter in group["params"])
        if halves and "eps" in group and float(torch.tensor(float(group["eps"]), dtype=torch.float16)) == 0.0:
            return True
    return False


def _trains_half(optimizer: Optimizer) -> bool:
    return any(p.dtype is torch.float16 for group in optimizer.param_groups for p in group["params"])
