"""Watched passes: forward and backward as the training does it, and in evaluation mode with changed inputs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.autopsy.steps.changes import eager
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.errors import StayfiniteError
from stayfinite.inspection.bench.graph_walk import leaves_of
from stayfinite.inspection.bench.watch import Seen, Watch
from stayfinite.state.rng import restore_rng

SMALLER = 2.0**-8
"""Factor for the loss scale when gradients overflow, as an fp16 scaler lowers it in its first steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPass:
    """The result of one forward and backward pass."""

    loss: Any
    """The return value of `forward`, detached if a tensor; None if it failed."""
    attached: bool
    """Whether the loss depends on anything that requires a gradient."""
    gradients: Mapping[str, Tensor | None]
    """By parameter name; all None if backward did not run."""
    forward_error: Exception | None
    backward_error: Exception | None
    seconds: float
    seen: Seen
    """Observations of the pass."""
    warned: tuple[str, ...] = ()
    """Warnings of torch and other libraries."""
    leaves: frozenset[int] = frozenset()
    """The ``id`` of every leaf tensor of the loss."""

    @property
    def worked(self) -> bool:
        """Whether forward and backward succeeded with gradients."""
        return self.forward_error is None and self.backward_error is None and self.attached and self.scalar

    @property
    def reaches_parameters(self) -> bool:
        """Whether the loss depends on a parameter; a new tensor with requires_grad depends only on itself."""
        return self.attached and (not self.worked or any(g is not None for g in self.gradients.values()))

    @property
    def scalar(self) -> bool:
        return isinstance(self.loss, Tensor) and self.loss.numel() == 1


def first_pass(model: nn.Module, step: Step, scaler: GradScaler | None = None) -> FirstPass:
    """Run one pass and restore everything."""
    scale = float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else 1.0
    found = _run(model, step, scale)
    while scale > 1.0 and not _finite(found) and found.worked:
        scale = max(1.0, scale * SMALLER)
        found = _run(model, step, scale)
    return found


def unable(model: nn.Module, why: str) -> FirstPass:
    """A pass that could not start."""
    return FirstPass(
        loss=None,
        attached=False,
        gradients={name: None for name, p in model.named_parameters() if p.requires_grad},
        forward_error=RuntimeError(why),
        backward_error=None,
        seconds=0.0,
        seen=Seen(),
    )


def _run(model: nn.Module, step: Step, scale: float) -> FirstPass:
    loss: Any = None
    attached, errors = False, dict[str, Exception]()
    leaves: frozenset[int] = frozenset()
    gradients: dict[str, Tensor | None] = dict.fromkeys(
        name for name, parameter in model.named_parameters() if parameter.requires_grad
    )
    start = time.perf_counter()
    watch = Watch(model)
    with untouched(model), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            restore_rng(dict(step.rng))
            with torch.enable_grad(), eager(), watch:
                loss = step.forward(step.fresh_batch())
        except StayfiniteError:
            raise
        except Exception as error:  # a forward pass can raise anything
            errors["forward"] = error
        if isinstance(loss, Tensor):
            attached = loss.requires_grad
            leaves = frozenset(map(id, leaves_of(loss)))
            try:
                if attached and loss.numel() == 1:
                    (loss * scale if scale != 1.0 else loss).backward()
            except Exception as error:  # a backward pass can raise anything
                errors["backward"] = error
            for name, p in model.named_parameters():
                if p.requires_grad:
                    gradients[name] = p.grad if p.grad is None or scale == 1.0 else p.grad / scale
            loss = loss.detach()
    return FirstPass(
        loss=loss,
        attached=attached,
        gradients=gradients,
        forward_error=errors.get("forward"),
        backward_error=errors.get("backward"),
        seconds=time.perf_counter() - start,
        seen=watch.seen,
        warned=tuple(dict.fromkeys(str(each.message) for each in warned)),
        leaves=leaves,
    )


def _finite(found: FirstPass) -> bool:
    return all(
        g is None or bool(torch.isfinite(g.to_dense() if g.is_sparse else g).all()) for g in found.gradients.values()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StillPass:
    """The result of the pass."""

    loss: Any
    outputs: dict[str, Tensor]
    """Every tensor that the model returned, by name, before the loss."""
    seen: Seen


def still_pass(step: Step, batch: Any, change_ids: Callable[[int, Tensor], Tensor] | None = None) -> StillPass:
    """Run ``batch`` with the step's model, forward and random numbers, and restore everything.

    ``change_ids`` changes the ids passed to embeddings.
    """
    outputs: dict[str, Tensor] = {}

    def keep(_module: Any, _args: Any, result: Any) -> None:
        outputs.clear()
        for name, item in batch_items(result).items():
            if item.is_floating_point() and item.dim():
                outputs[name.removeprefix("batch.").replace("batch", "output", 1)] = item.detach()

    watch = Watch(step.model, change_ids)
    with untouched(step.model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        restore_rng(dict(step.rng))
        step.model.eval()
        with torch.no_grad(), eager(), watch, step.model.register_forward_hook(keep):
            loss = step.forward(step.changed(batch=batch).fresh_batch())
    return StillPass(loss=loss.detach() if isinstance(loss, Tensor) else loss, outputs=outputs, seen=watch.seen)
