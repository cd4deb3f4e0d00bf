"""One forward and backward pass as the training would do it, watched."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from stayfinite.autopsy.steps.changes import eager
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.errors import StayfiniteError
from stayfinite.inspection.bench.graph_walk import leaves_of
from stayfinite.inspection.bench.watch import Seen, Watch
from stayfinite.state.rng import restore_rng

SMALLER = 2.0**-8
"""By this the loss scale is lowered when gradients overflow at it: an fp16 scaler does the same in its first steps."""


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
    seen: Seen
    """What was watched on the way."""
    warned: tuple[str, ...] = ()
    """What torch and others warned of."""
    leaves: frozenset[int] = frozenset()
    """The ``id`` of every tensor that the loss can be differentiated by."""

    @property
    def worked(self) -> bool:
        """Whether forward and backward went through, and there are gradients."""
        return self.forward_error is None and self.backward_error is None and self.attached and self.scalar

    @property
    def reaches_parameters(self) -> bool:
        """Whether the loss hangs on any parameter: a new tensor that requires a gradient hangs on itself alone."""
        return self.attached and (not self.worked or any(g is not None for g in self.gradients.values()))

    @property
    def scalar(self) -> bool:
        """Whether the loss is a tensor with one element."""
        return isinstance(self.loss, Tensor) and self.loss.numel() == 1


def first_pass(model: nn.Module, step: Step, scaler: GradScaler | None = None) -> FirstPass:
    """Run it; everything is as before when this returns."""
    scale = float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else 1.0
    found = _run(model, step, scale)
    while scale > 1.0 and not _finite(found) and found.worked:
        scale = max(1.0, scale * SMALLER)
        found = _run(model, step, scale)
    return found


def unable(model: nn.Module, why: str) -> FirstPass:
    """The pass that could not be begun."""
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
        except Exception as error:  # whatever a forward pass may raise
            errors["forward"] = error
        if isinstance(loss, Tensor):
            attached = loss.requires_grad
            leaves = leaves_of(loss)
            try:
                if attached and loss.numel() == 1:
                    (loss * scale if scale != 1.0 else loss).backward()
            except Exception as error:  # whatever a backward pass may raise
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
