"""Watched passes (forward and backward, or in evaluation mode with changed inputs), and one optimizer step, undone."""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.autopsy.steps.changes import eager
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.errors import StayfiniteError
from stayfinite.inspection.bench.graph_walk import leaves_of
from stayfinite.inspection.bench.keeping import Keeping
from stayfinite.inspection.bench.watch import Seen, Watch
from stayfinite.state.rng import restore_rng

SMALLER = 2.0**-8
"""Factor for the loss scale when gradients overflow, as an fp16 scaler lowers it in its first steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPass:
    """The result of one forward and backward pass."""

    loss: Any = None
    """The return value of `forward`, detached if a tensor; None if it failed."""
    attached: bool = False
    """Whether the loss depends on anything that requires a gradient."""
    gradients: Mapping[str, Tensor | None]
    """By parameter name; all None if backward did not run."""
    forward_error: Exception | None
    backward_error: Exception | None = None
    seconds: float = 0.0
    seen: Seen = field(default_factory=Seen)
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
    while scale > 1.0 and not _all_finite(found) and found.worked:
        scale = max(1.0, scale * SMALLER)
        found = _run(model, step, scale)
    return found


def unable(model: nn.Module, why: str) -> FirstPass:
    """A pass that could not start."""
    none = {name: None for name, p in model.named_parameters() if p.requires_grad}
    return FirstPass(gradients=none, forward_error=RuntimeError(why))


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


def _all_finite(found: FirstPass) -> bool:
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


FEW = 8
"""With fewer values, all may be near 0 by chance, and a large relative update is meaningless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The effect of one optimizer step."""

    error: str = ""
    """Why it failed."""
    moved: frozenset[str] = frozenset()
    """Parameters with a changed value."""
    broken: frozenset[str] = frozenset()
    """Finite parameters with a finite gradient that are non-finite after the step."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """Update norm over weight norm, for nonzero weights of at least two dimensions with a nonzero gradient."""
    lost: float | None = None
    """Share of 16-bit values with a gradient that did not change; None if there are none."""


def one_update(optimizer: Optimizer, trainable: Mapping[str, nn.Parameter], first: FirstPass, kept: Keeping) -> Update:
    """Take the step of the first pass, measure it, and undo it."""
    if not first.worked:
        return Update(error="no gradients to step with")
    moved, broken, ratios = set(), set(), {}
    lost = held = 0
    with kept.undone(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, p in trainable.items():
            gradient = first.gradients[name]
            p.grad = None if gradient is None else gradient.clone()
        try:
            optimizer.step()
        except Exception as error:  # an optimizer can raise anything
            return Update(error=f"{type(error).__name__}: {error}")
        for name, p in trainable.items():
            before, gradient = kept.copies[id(p)].to(p.device), first.gradients[name]
            changed = p.detach() != before
            if bool(changed.any()):
                moved.add(name)
            if not _finite(p) and _finite(before) and (gradient is None or _finite(gradient)):
                broken.add(name)
                continue
            if p.dtype in (torch.bfloat16, torch.float16) and gradient is not None and not gradient.is_sparse:
                gone, alive = rounded_away(before, p.detach(), gradient)
                held, lost = held + alive, lost + gone
            size = _norm(before)
            if p.dim() > 1 and p.numel() >= FEW and size > 0 and gradient is not None and _norm(gradient) > 0:
                ratios[name] = _norm(p.detach() - before) / size
    return Update(moved=frozenset(moved), broken=frozenset(broken), ratios=ratios, lost=lost / held if held else None)


def rounded_away(before: Tensor, after: Tensor, gradient: Tensor) -> tuple[int, int]:
    """Values with a gradient that a step left unchanged, and all values with one."""
    alive = gradient != 0
    return int((alive & (after == before)).sum()), int(alive.sum())


def _finite(tensor: Tensor) -> bool:
    tensor = tensor.coalesce().values() if tensor.is_sparse else tensor
    return bool(tensor.detach().isfinite().all())


def _norm(tensor: Tensor) -> float:
    tensor = tensor.coalesce().values() if tensor.is_sparse else tensor
    tensor = tensor.detach()
    return float(torch.linalg.vector_norm(tensor.abs() if tensor.is_complex() else tensor.float()))
