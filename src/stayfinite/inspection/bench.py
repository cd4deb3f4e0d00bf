"""What is on the bench: the parts of a training before its first step, and one pass over them that all probes share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.autopsy.step import Step, untouched
from stayfinite.state.rng import capture_rng


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The parts of a training. Probes read them, run passes over them, and leave them as they were."""

    model: nn.Module
    optimizer: Optimizer
    batch: Any
    forward: Callable[[Any], Any]
    """``forward(batch) -> loss``, with whatever autocast the training itself uses."""
    scaler: GradScaler | None = None
    loader: Iterable[Any] | None = None
    precision: str | None = None
    """The precision that the training is meant to compute in, where it is not that of `forward`: fp16, bf16, fp32."""
    steps: int = 10
    """How many steps the learning test may take; 0 for none."""

    @cached_property
    def step(self) -> Step:
        """One step that can be run again with something changed."""
        return Step(model=self.model, forward=self.forward, batch=self.batch, rng=capture_rng())

    @cached_property
    def first(self) -> FirstPass:
        """One forward and backward pass as the training would do it, without the optimizer."""
        return _first_pass(self.model, self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPass:
    """What one forward and backward pass gave."""

    loss: Any
    """What `forward` returned, detached where it is a tensor; None when it failed."""
    attached: bool
    """Whether the loss hangs on anything that requires a gradient."""
    gradients: Mapping[str, Tensor | None]
    """Of every trainable parameter, by name; all None when backward was not reached."""
    forward_error: Exception | None
    backward_error: Exception | None
    seconds: float


def _first_pass(model: nn.Module, step: Step) -> FirstPass:
    loss: Any = None
    attached, errors = False, dict[str, Exception]()
    gradients: dict[str, Tensor | None] = dict.fromkeys(
        name for name, parameter in model.named_parameters() if parameter.requires_grad
    )
    start = time.perf_counter()
    with untouched(model):
        try:
            with torch.enable_grad():
                loss = step.forward(step.fresh_batch())
        except Exception as error:  # whatever a forward pass may raise
            errors["forward"] = error
        if isinstance(loss, Tensor):
            attached = loss.requires_grad
            try:
                if attached and loss.numel() == 1:
                    loss.backward()
            except Exception as error:  # whatever a backward pass may raise
                errors["backward"] = error
            gradients |= {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
            loss = loss.detach()
    return FirstPass(
        loss=loss,
        attached=attached,
        gradients=gradients,
        forward_error=errors.get("forward"),
        backward_error=errors.get("backward"),
        seconds=time.perf_counter() - start,
    )
