"""One training step that can be run again: the same batch, weights and random numbers, as often as one likes."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.batch_parts import with_changed
from stayfinite.autopsy.tracing.looking import dense
from stayfinite.state.rng import capture_rng, restore_rng


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a step."""

    finite: bool
    """Loss and every gradient."""
    loss: float
    grad_norm: float
    largest: float
    """The largest magnitude among the gradients."""
    zero_share: float
    """The share of gradient elements that are exactly 0."""
    seconds: float
    error: str = ""
    """Why it could not be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step as it was taken, or with something changed."""

    model: nn.Module
    forward: Callable[[Any], Tensor]
    batch: Any
    rng: Mapping[str, Any]
    """The random number generators as they stood before the forward pass."""
    scale: float = 1.0
    """The loss scale that was in force."""
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    """The guard's own autocast, round the forward pass."""
    around: tuple[Callable[[], AbstractContextManager[Any]], ...] = field(default=())
    """What is changed while it runs."""

    def run(self) -> Outcome:
        """Run it; weights, buffers, gradients, modes and generators are as before when this returns."""
        start = time.perf_counter()
        sizes: list[tuple[float, float, float]] = []
        try:
            with untouched(self.model):
                loss = self.execute(self.fresh_batch(), lambda: sizes.append(self._gradient_sizes()))
        except Exception as error:  # whatever a forward pass may raise with fewer rows or other weights
            return Outcome(
                finite=False,
                loss=math.nan,
                grad_norm=math.nan,
                largest=math.nan,
                zero_share=0.0,
                seconds=time.perf_counter() - start,
                error=f"{type(error).__name__}: {error}",
            )
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
        """The batch as it was: forward passes take items out of it and write into its tensors."""
        return with_changed(self.batch, _copied)

    def execute(
        self, batch: Any, then: Callable[[], None] = lambda: None, go_on: Callable[[Tensor], bool] = lambda _loss: True
    ) -> Tensor:
        """Forward and backward, once, with everything as changed.

        Arguments:
            batch: a fresh copy.
            then: called while the gradients are there.
            go_on: says, from the loss, whether the backward pass is of any interest.
        """
        restore_rng(dict(self.rng))
        with _all(self.around), warnings.catch_warnings():
            # A re-run may do what torch warns of: a spread of one row, a bf16 that the CPU emulates.
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
        """The same step with something else."""
        return replace(self, around=(*self.around, *around), **fields)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Gradients, buffers, training modes and generators are put back at the end; the weights are not written to.

    Hooks that run when a gradient is complete are off meanwhile: many a one takes the optimizer's step there.
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
    # A precision that the CPU does not have makes torch switch this library off, for the whole process.
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
                module._buffers[name] = buffer  # a forward pass may have put another one there
                # Not by the version: batch norm writes its statistics without counting.
                if kept.shape == buffer.shape and not torch.equal(kept, buffer):
                    buffer.copy_(kept)
        for module, training in modes.items():
            module.training = training
        restore_rng(generators)
        if bool(torch.backends.mkldnn.enabled) is not library:
            mkldnn: Any = torch.backends.mkldnn
            mkldnn.enabled = library


@contextmanager
def _all(contexts: tuple[Callable[[], AbstractContextManager[Any]], ...]) -> Iterator[None]:
    if not contexts:
        yield
        return
    with contexts[0](), _all(contexts[1:]):
        yield


def _copied(item: Any) -> Any:
    return item.detach().clone().requires_grad_(item.requires_grad) if isinstance(item, Tensor) else item


def _backward(loss: Tensor) -> None:
    """As ``loss.backward()``, which a mode that watches functions would take for one of them and be off meanwhile."""
    run = getattr(torch.autograd.graph, "_engine_run_backward", None)
    if run is None or not loss.requires_grad or loss.numel() != 1:
        loss.backward()
        return
    run((loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True)


def _size(gradients: list[Tensor], scale: float) -> tuple[float, float, float]:
    """Norm, largest magnitude and share of zeros of all gradients together."""
    if not gradients:
        return 0.0, 0.0, 0.0
    # A number at a time: a tensor on the host would be an operator on a device that the step may have left.
    norms = [float(torch.linalg.vector_norm(g, dtype=torch.float64)) for g in gradients]
    sizes = [float(g.abs().amax()) for g in gradients if g.numel()]
    zeros = sum(int((g == 0).sum()) for g in gradients) / max(1, sum(g.numel() for g in gradients))
    # Python's max would lose a NaN that does not come first.
    largest = next((size for size in sizes if math.isnan(size)), max(sizes, default=0.0))
    return math.hypot(*norms) / scale, largest / scale, zeros
