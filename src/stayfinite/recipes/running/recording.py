"""Make steps faster: record forward and backward as CUDA graphs, or compile a model's blocks.

A small model on a large card is limited by kernel launches from the host. Each batch shape is recorded once and then
launched as a whole. The guard and the autopsy are unaffected: outside :meth:`RecordedLoss.replaying` the forward pass
runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.surroundings import is_compiled
from stayfinite.errors import OrderError, UsageError
from stayfinite.guard.graphing.graphs import CudaTape, Form, StaticBatch, Tape, first_cause, form_of
from stayfinite.state.parts import holding

WARM_UP = 2
"""Eager passes before recording, for libraries to initialize."""

MOST_FORMS = 96
"""Batch shapes recorded; further ones run eagerly."""


class RecordedLoss:
    """A forward pass ``batch -> loss`` that is replayed, with its backward pass, within :meth:`replaying`.

    Gradients equal those of eager passes and always use the same memory. Recording leaves random state and running
    statistics unchanged.

    Arguments:
        model: its parameters get the gradients.
        compute_loss: the forward pass; must run the same operators for all batches of one shape.
        say: told if recording fails; training continues eagerly.
        wanted: False to run eagerly.
        tape: the recorder; default: CUDA graphs.

    Raises:
        UsageError: ``wanted`` without a CUDA device.
    """

    def __init__(
        self,
        model: nn.Module,
        compute_loss: Callable[[Any], Tensor],
        say: Callable[[str], None],
        *,
        wanted: bool = True,
        tape: Tape | None = None,
    ) -> None:
        self._model, self._compute_loss, self._say = model, compute_loss, say
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._device = self._parameters[0].device
        self._given_up = not wanted
        if wanted:
            self._tape = _cuda_tape(self._device) if tape is None else tape
            self._gradients = [torch.zeros_like(parameter) for parameter in self._parameters]
            self._anchor = torch.zeros((), device=self._device, requires_grad=True)
        self._forms: dict[Form, _Recorded] = {}
        self._places: list[int] = []
        self._replaying = False
        self._open: _Recorded | None = None
        """Owner of the last forward pass: all share the same memory."""

    def __call__(self, batch: Any) -> Tensor:
        replayed = self._replaying and self._model.training and not self._given_up
        recorded = self._recorded(batch) if replayed else None
        if recorded is None:
            return self._compute_loss(batch)
        replay: Callable[..., Tensor] = _Replay.apply
        return replay(self._anchor, self, recorded, batch)

    @property
    def is_recorded(self) -> bool:
        """Whether anything is recorded; read by the guard."""
        return bool(self._forms)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Replay forward passes within this context, recording new shapes."""
        self._replaying = True
        try:
            yield
        finally:
            self._replaying = False

    def _recorded(self, batch: Any) -> _Recorded | None:
        places = [parameter.data_ptr() for parameter in self._parameters]
        if places != self._places:
            self._forms.clear()  # the weights have moved
            self._places = places
        kind = self._device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        form = (form_of(batch), precision)
        if form not in self._forms:
            if len(self._forms) >= MOST_FORMS:
                return None
            try:
                self._forms[form] = self._record(batch)
            except RuntimeError as error:
                self._given_up = True
                self._forms.clear()
                cause = first_cause(error)
                self._say(f"no CUDA graph, running eagerly: {cause}")
        return self._forms.get(form)

    def _record(self, batch: Any) -> _Recorded:
        found = _Recorded(StaticBatch(batch, self._device), self._compute_loss, self._parameters, self._gradients)
        devices = [self._device] if self._device.type == "cuda" else []
        # Gradients of the current step, and running statistics.
        changed = [(each, each) for each in (*self._gradients, *self._model.buffers())]
        with torch.random.fork_rng(devices), holding(changed):
            with self._tape.aside():
                for _ in range(WARM_UP):
                    found.compute()
                    found.differentiate()
            found.replay_forward, found.replay_backward = self._tape.record(found.compute, found.differentiate)
        return found

    def forward(self, recorded: _Recorded, batch: Any) -> Tensor:
        self._open = recorded
        recorded.batch.take(batch)
        recorded.replay_forward()
        return recorded.loss.clone()

    def backward(self, recorded: _Recorded, seed: Tensor) -> None:
        """Replay the backward pass and add to the parameters' gradients."""
        if self._open is not recorded:
            raise OrderError(
                "another forward pass overwrote a recorded loss before its backward pass",
                fix="call backward on each loss before the next forward pass",
            )
        self._open = None
        held = [parameter.grad for parameter in self._parameters]
        earlier = {index: gradient.clone() for index, gradient in enumerate(held) if gradient is not None}
        recorded.seed.copy_(seed)
        recorded.replay_backward()
        for index in recorded.reached:
            self._parameters[index].grad = self._gradients[index]
        if both := [index for index in recorded.reached if index in earlier]:
            torch._foreach_add_([self._gradients[index] for index in both], [earlier[index] for index in both])


def _cuda_tape(device: torch.device) -> CudaTape:
    if device.type != "cuda":
        raise UsageError(f"CUDA graphs need a CUDA device, but the model is on {device}", fix="remove --graphs")
    return CudaTape(device)


class _Recorded:
    """The passes for one batch shape, always in the same memory."""

    replay_forward: Callable[[], None]
    replay_backward: Callable[[], None]
    loss: Tensor

    def __init__(
        self,
        batch: StaticBatch,
        compute_loss: Callable[[Any], Tensor],
        parameters: list[nn.Parameter],
        gradients: list[Tensor],
    ) -> None:
        self.batch = batch
        self._compute_loss, self._parameters, self._gradients = compute_loss, parameters, gradients
        self.seed = torch.ones((), device=gradients[0].device)
        self.reached: list[int] = []
        """Indices of the parameters with a gradient."""
        self._root: Tensor | None = None

    def compute(self) -> None:
        # A cached half-precision cast would be recorded and stay stale.
        cached = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        torch.clear_autocast_cache()
        try:
            with torch.enable_grad():
                self._root = self._compute_loss(self.batch.batch)
        finally:
            torch.set_autocast_cache_enabled(cached)
        self.loss = self._root.detach()

    def differentiate(self) -> None:
        assert self._root is not None
        seed = self.seed.to(self._root.dtype)
        found = torch.autograd.grad(self._root, self._parameters, seed, allow_unused=True)
        self._root = None
        self.reached = [index for index, gradient in enumerate(found) if gradient is not None]
        torch._foreach_copy_(
            [self._gradients[index] for index in self.reached], [found[index] for index in self.reached]
        )


class _Replay(torch.autograd.Function):
    """Connects autograd to the recording."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, owner: RecordedLoss, recorded: _Recorded, batch: Any) -> Tensor:  # noqa: ARG004
        ctx.owner, ctx.recorded = owner, recorded
        return owner.forward(recorded, batch)

    @staticmethod
    def backward(ctx: Any, seed: Tensor) -> tuple[None, None, None, None]:
        ctx.owner.backward(ctx.recorded, seed)
        return None, None, None, None


def compile_blocks(model: nn.Module, say: Callable[[str], None], backend: str = "inductor") -> None:
    """Compile every transformer block in place, for any batch size.

    Blocks of one class share code, so depth does not add compile time. Weight names, checkpoints and the autopsy are
    unaffected: incidents re-run uncompiled.
    """
    kinds = set(getattr(model, "_no_split_modules", None) or ())
    blocks = [module for module in model.modules() if type(module).__name__ in kinds]
    for block in blocks:
        block.compile(dynamic=True, backend=backend)
    if blocks:
        say(f"compiling {len(blocks)} blocks: the first steps take up to two minutes")
    else:
        say("not compiled: no repeated blocks found in this model")


def as_written(model: nn.Module) -> AbstractContextManager[Any]:
    """Run compiled blocks eagerly within this context, since generation changes shape at every token."""
    return torch.compiler.set_stance("force_eager") if is_compiled(model) else nullcontext()
