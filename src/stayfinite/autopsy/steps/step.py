"""One training step that can be run again with the same batch, weights and random numbers."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.batch_parts import with_changed
from stayfinite.autopsy.tracing.looking import dense
from stayfinite.state.rng import capture_rng, restore_rng


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a step."""

    finite: bool = False
    """Whether the loss and every gradient are finite."""
    loss: float = math.nan
    grad_norm: float = math.nan
    largest: float = math.nan
    """Largest magnitude among the gradients."""
    zero_share: float = 0.0
    """Share of gradient elements that are exactly 0."""
    seconds: float
    error: str = ""
    """Why it could not be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step as it was taken, or with a change."""

    model: nn.Module
    forward: Callable[[Any], Tensor]
    batch: Any
    rng: Mapping[str, Any]
    """Generator states before the forward pass."""
    scale: float = 1.0
    """Loss scale in force."""
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    """The guard's own autocast around the forward pass."""
    around: tuple[Callable[[], AbstractContextManager[Any]], ...] = field(default=())
    """Changes while it runs."""

    def run(self) -> Outcome:
        """Run the step; weights, buffers, gradients, modes and generators are unchanged afterwards."""
        start = time.perf_counter()
        sizes: list[tuple[float, float, float]] = []
        try:
            with untouched(self.model):
                loss = self.execute(self.fresh_batch(), lambda: sizes.append(self._gradient_sizes()))
        except Exception as error:  # a forward pass with fewer rows or other weights may raise anything
            return Outcome(seconds=time.perf_counter() - start, error=f"{type(error).__name__}: {error}")
        value = float(loss.detach().float())
        norm, largest, zeros = sizes[0]
        return Outcome(
            finite=math.isfinite(value) and math.isfinite(largest),
            loss=value,
            grad_norm=norm,
            largest=largest,
            zero_share=zeros,
            seconds=time.perf_counter() - start,
        )

    def fresh_batch(self) -> Any:
        """A copy of the batch: forward passes pop items and write to tensors."""
        return with_changed(self.batch, _copied)

    def execute(
        self, batch: Any, then: Callable[[], None] = lambda: None, go_on: Callable[[Tensor], bool] = lambda _loss: True
    ) -> Tensor:
        """Run forward and backward once, with all changes.

        Arguments:
            batch: a fresh copy.
            then: called while the gradients exist.
            go_on: whether to run backward, given the loss.
        """
        restore_rng(dict(self.rng))
        with ExitStack() as stack:
            for change in self.around:
                stack.enter_context(change())
            stack.enter_context(warnings.catch_warnings())
            # A re-run may trigger warnings: std of one row, emulated bf16 on the CPU.
            warnings.simplefilter("ignore")
            with torch.enable_grad(), self.autocast():
                loss = self.forward(batch)
            if go_on(loss):
                _backward(loss * self.scale if self.scale != 1.0 else loss)
            then()
        return loss

    def _gradient_sizes(self) -> tuple[float, float, float]:
        gradients = [dense(p.grad.detach()) for p in self.model.parameters() if p.grad is not None]
        return _size(gradients, self.scale)

    def changed(self, *around: Callable[[], AbstractContextManager[Any]], **fields: Any) -> Step:
        """A copy of the step with further changes."""
        return replace(self, around=(*self.around, *around), **fields)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Context that restores gradients, buffers, training modes and generators; weights must not be written to.

    Post-accumulate-grad hooks are disabled: many of them step the optimizer.
    """
    gradients = {name: p.grad for name, p in model.named_parameters()}
    hooked = [(p, hooks) for p in model.parameters() if (hooks := p._post_accumulate_grad_hooks)]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    modes = {module: module.training for module in model.modules()}
    generators = capture_rng()
    # torch disables this library for the whole process if the CPU lacks a precision.
    library = bool(torch.backends.mkldnn.enabled)
    model.zero_grad(set_to_none=True)
    for parameter, _ in hooked:
        parameter._post_accumulate_grad_hooks = {}
    try:
        yield
    finally:
        for parameter, hooks in hooked:
            parameter._post_accumulate_grad_hooks = hooks
        for name, parameter in model.named_parameters():
            parameter.grad = gradients.get(name)
        with torch.no_grad():
            for module, name, buffer, kept in buffers:
                module._buffers[name] = buffer  # a forward pass may have replaced it
                # Not by version: batch norm updates its statistics without counting.
                if kept.shape == buffer.shape and not torch.equal(kept, buffer):
                    buffer.copy_(kept)
        for module, training in modes.items():
            module.training = training
        restore_rng(generators)
        if bool(torch.backends.mkldnn.enabled) is not library:
            mkldnn: Any = torch.backends.mkldnn
            mkldnn.enabled = library


def _copied(item: Any) -> Any:
    return item.detach().clone().requires_grad_(item.requires_grad) if isinstance(item, Tensor) else item


def _backward(loss: Tensor) -> None:
    """As ``loss.backward()``, which a function mode would intercept, and be off meanwhile."""
    run = getattr(torch.autograd.graph, "_engine_run_backward", None)
    if run is None or not loss.requires_grad or loss.numel() != 1:
        loss.backward()
        return
    run((loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True)


def _size(gradients: list[Tensor], scale: float) -> tuple[float, float, float]:
    """Norm, largest magnitude and share of zeros over all gradients."""
    if not gradients:
        return 0.0, 0.0, 0.0
    # As Python numbers: a host tensor would be an operator on a device that the step may have left.
    norms = [float(torch.linalg.vector_norm(g, dtype=torch.float64)) for g in gradients]
    sizes = [float(g.abs().amax()) for g in gradients if g.numel()]
    zeros = sum(int((g == 0).sum()) for g in gradients) / max(1, sum(g.numel() for g in gradients))
    # Python's max would lose a NaN that is not first.
    largest = next((size for size in sizes if math.isnan(size)), max(sizes, default=0.0))
    return math.hypot(*norms) / scale, largest / scale, zeros
