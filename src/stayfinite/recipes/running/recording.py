"""Forward and backward of a training, recorded as CUDA graphs: one launch each instead of thousands.

A small model on a large card waits for the host, which needs longer to launch a kernel than the card to run it. What is
recorded once for a form of batch is launched as a whole ever after. The guard's part of the step stays as it is, and so
does the autopsy: outside of :meth:`RecordedLoss.replaying` the forward pass runs as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.errors import OrderError, UsageError
from stayfinite.guard.graphing.graphs import CudaTape, Tape, first_cause
from stayfinite.guard.graphing.static_batch import Form, StaticBatch, form_of

WARM_UP = 2
"""Times that forward and backward run before they are recorded: libraries set themselves up."""

MOST_FORMS = 96
"""Forms of batch that are recorded; one more runs as it is written."""


class RecordedLoss:
    """A forward pass ``batch -> loss`` that is replayed, with its backward pass, within :meth:`replaying`.

    The gradients are those of the model's own passes. They are put into the same memory every time, for as long as this
    lives. After a recording, random numbers and running statistics stand where they stood before.

    Arguments:
        model: whose parameters get the gradients.
        compute_loss: the forward pass; must compute the same operators for every batch of one form.
        say: is told when something cannot be recorded; training goes on without.
        wanted: without it everything runs as it is written.
        tape: what records; CUDA graphs if none is given.

    Raises:
        UsageError: it is wanted, and there is no CUDA device.
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
        """Whose forward pass was the last one: all of them work in the same memory."""

    def __call__(self, batch: Any) -> Tensor:
        """The loss of a batch."""
        replayed = self._replaying and self._model.training and not self._given_up
        recorded = self._recorded(batch) if replayed else None
        if recorded is None:
            return self._compute_loss(batch)
        replay: Callable[..., Tensor] = _Replay.apply
        return replay(self._anchor, self, recorded, batch)

    @property
    def is_recorded(self) -> bool:
        """Whether training runs anything else than the forward pass as it is written; the guard asks."""
        return bool(self._forms)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Within, a forward pass is replayed, and recorded where it was not yet."""
        self._replaying = True
        try:
            yield
        finally:
            self._replaying = False

    def _recorded(self, batch: Any) -> _Recorded | None:
        places = [parameter.data_ptr() for parameter in self._parameters]
        if places != self._places:
            self._forms.clear()  # somebody has put the weights elsewhere
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
        with torch.random.fork_rng(devices), _put_back([*self._gradients, *self._model.buffers()]):
            with self._tape.aside():
                for _ in range(WARM_UP):
                    found.compute()
                    found.differentiate()
            found.replay_forward, found.replay_backward = self._tape.record(found.compute, found.differentiate)
        return found

    def forward(self, recorded: _Recorded, batch: Any) -> Tensor:
        """The loss of a batch, by a replay."""
        self._open = recorded
        recorded.batch.take(batch)
        recorded.replay_forward()
        return recorded.loss.clone()

    def backward(self, recorded: _Recorded, seed: Tensor) -> None:
        """Add the gradients of the last forward pass to those of the parameters, by a replay."""
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


@contextmanager
def _put_back(tensors: list[Tensor]) -> Iterator[None]:
    """What these hold afterwards is what they held before: gradients of a step under way, running statistics."""
    held = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, held, strict=True):
                tensor.copy_(value)


def _cuda_tape(device: torch.device) -> CudaTape:
    if device.type != "cuda":
        raise UsageError(f"CUDA graphs need a CUDA device, but the model is on {device}", fix="remove --graphs")
    return CudaTape(device)


class _Recorded:
    """The passes of one form of batch, always in the same memory."""

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
        """Which parameters have a gradient."""
        self._root: Tensor | None = None

    def compute(self) -> None:
        # A weight that was cast to half precision before would be taken from the cache, and be an old one ever after.
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
    """Where autograd meets what was recorded."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, owner: RecordedLoss, recorded: _Recorded, batch: Any) -> Tensor:  # noqa: ARG004
        ctx.owner, ctx.recorded = owner, recorded
        return owner.forward(recorded, batch)

    @staticmethod
    def backward(ctx: Any, seed: Tensor) -> tuple[None, None, None, None]:
        ctx.owner.backward(ctx.recorded, seed)
        return None, None, None, None
