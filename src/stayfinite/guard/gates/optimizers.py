"""What is known about optimizers: which of them can be refused a step by a flag on the device."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

FLAGGED = (Adam, AdamW, SGD, Adagrad)
"""Optimizers whose fused kernels read ``found_inf`` and do nothing when it is set."""


def takes_flag(optimizer: Optimizer) -> bool:
    """Whether the optimizer's own kernels refuse the step when a flag on the device says so."""
    fused = bool(optimizer.param_groups) and all(group.get("fused") for group in optimizer.param_groups)
    # A subclass with a step of its own may do anything, so only torch's own functions are trusted.
    step = inspect.unwrap(type(optimizer).step)
    return fused and any(step is inspect.unwrap(known.step) for known in FLAGGED)


@contextmanager
def flagged(optimizer: Optimizer, refused: Tensor, divisor: Tensor | None = None) -> Iterator[None]:
    """Within, the optimizer's fused step does nothing if ``refused`` (float32, 0 or 1) is 1.

    Otherwise it divides the gradients by ``divisor`` (float32) as it reads them.
    """
    asked: Any = optimizer  # the fused steps of torch look for these two, which no type tells of
    asked.grad_scale, asked.found_inf = divisor, refused
    try:
        yield
    finally:
        del asked.grad_scale, asked.found_inf


def awaits_first_step(optimizer: Optimizer) -> bool:
    """Whether the next step is still another one than all that follow: SGD's first one makes its momentum."""
    return isinstance(optimizer, SGD) and any(
        group["momentum"] != 0
        and all(optimizer.state.get(p, {}).get("momentum_buffer") is None for p in group["params"])
        for group in optimizer.param_groups
    )


def would_start_from_garbage(optimizer: Optimizer) -> bool:
    """Whether a refused fused step would leave state behind that was allocated and never written.

    Fused SGD allocates its momentum in the step that first needs it and relies on that step to fill it.
    """
    return isinstance(optimizer, SGD) and any(
        group["momentum"] != 0
        and any(p.grad is not None and optimizer.state[p].get("momentum_buffer") is None for p in group["params"])
        for group in optimizer.param_groups
    )
