"""Which optimizers can skip a step by a flag on the device."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

FLAGGED = (Adam, AdamW, SGD, Adagrad)
"""Optimizers whose fused kernels skip the step if ``found_inf`` is set."""


def takes_flag(optimizer: Optimizer) -> bool:
    """Whether the optimizer's kernels skip the step if a device flag is set."""
    fused = bool(optimizer.param_groups) and all(group.get("fused") for group in optimizer.param_groups)
    # A subclass may override step, so only torch's own functions are trusted.
    step = inspect.unwrap(type(optimizer).step)
    return fused and any(step is inspect.unwrap(known.step) for known in FLAGGED)


@contextmanager
def flagged(optimizer: Optimizer, refused: Tensor, divisor: Tensor | None = None) -> Iterator[None]:
    """Context in which the fused step is skipped if ``refused`` (float32, 0 or 1) is 1.

    Otherwise it divides the gradients by ``divisor`` (float32) while reading them.
    """
    asked: Any = optimizer  # torch's fused steps read these two undeclared attributes
    asked.grad_scale, asked.found_inf = divisor, refused
    try:
        yield
    finally:
        del asked.grad_scale, asked.found_inf


def awaits_first_step(optimizer: Optimizer) -> bool:
    """Whether the next step differs from later ones: SGD's first step creates its momentum."""
    return isinstance(optimizer, SGD) and any(
        group["momentum"] != 0
        and all(optimizer.state.get(p, {}).get("momentum_buffer") is None for p in group["params"])
        for group in optimizer.param_groups
    )


def would_start_from_garbage(optimizer: Optimizer) -> bool:
    """Whether a refused fused step would leave uninitialized state.

    Fused SGD allocates its momentum in the first step and relies on that step to fill it.
    """
    return isinstance(optimizer, SGD) and any(
        group["momentum"] != 0
        and any(p.grad is not None and optimizer.state[p].get("momentum_buffer") is None for p in group["params"])
        for group in optimizer.param_groups
    )
