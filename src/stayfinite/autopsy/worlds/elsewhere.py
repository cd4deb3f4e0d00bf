"""Run the step on another kind of device: from an accelerator to the CPU, or the reverse.

Copies replace the model's tensors while it runs, so the originals and what refers to them (an optimizer, DDP hooks) are
not touched. An operator that computes on the original device is an error: the outcome would prove nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import FlopCounterMode

from stayfinite.autopsy.steps.batch_parts import with_changed
from stayfinite.autopsy.steps.changes import eager, no_dropout, of_this_step, replaced
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.autopsy.steps.trace import Trace
from stayfinite.autopsy.tracing.looking import can_be_bad

ROOM = 4
"""Multiple of the model size that must be free: weights, gradients, activations."""

WORSE = 4
"""How much slower than a plain matrix product a whole step may be."""

OF_DROPOUT = ("dropout", "bernoulli", "attention")
"""Random operators that a step without dropout does not need."""


def device_of(model: nn.Module) -> torch.device | None:
    """Device of a model; None if it is on several kinds, or has no tensors."""
    kinds = {tensor.device.type: tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return next(iter(kinds.values())) if len(kinds) == 1 else None


def other_device(step: Step) -> torch.device | None:
    """Another kind of device with enough memory; None if there is none, or the model cannot be copied."""
    here = device_of(step.model)
    tensors = [*step.model.parameters(), *step.model.buffers()]
    if here is None or here.type == "meta" or not all(type(t) in (Tensor, nn.Parameter) for t in tensors):
        return None  # sharded and quantized weights are more than their values
    if any(tensor._backward_hooks for tensor in tensors):
        return None  # a copy would lose the hooks, which are part of the step
    there = torch.device("cpu") if here.type != "cpu" else torch.accelerator.current_accelerator()
    if there is None or not torch.accelerator.is_available():
        return None
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return there if size * ROOM <= _free_bytes(there) else None


def moved_to(step: Step, device: torch.device, *, dropout: bool = True) -> Step:
    """The step on another device, in eager mode: compiling for it may take minutes."""
    here = device_of(step.model)
    watch = partial(nothing_stays_behind, "" if here is None or here.type == device.type else here.type)
    around: list[Callable[[], Any]] = [
        eager, partial(model_on, step.model, device), partial(autocast_on, device.type), watch,
    ]  # fmt: skip
    if not dropout:
        around.append(partial(no_dropout, step.model))
    batch = with_changed(step.batch, lambda x: _on(x, device) if isinstance(x, Tensor) else x)
    return step.changed(*around, batch=batch)


def draws_numbers(trace: Trace) -> bool:
    """Whether it uses random numbers besides dropout, which would differ on another device."""
    names = {(e.operator, e.overload) for e in trace.tracer.events}
    return any(
        _is_random(operator, overload) and not any(word in operator for word in OF_DROPOUT)
        for operator, overload in names
    )


def can_be_run(step: Step, dtype: torch.dtype, seconds: float) -> bool:
    """Whether the step is likely to finish on the other device in time, and is safe to start."""
    there = other_device(step)
    if there is None or (there.type == "cuda" and not torch.cuda.is_initialized()):
        return False  # initializing CUDA would prevent a later fork
    try:
        return seconds_on(step, there, dtype) <= seconds
    except Exception:  # a forward pass may raise anything
        return False


def seconds_on(step: Step, device: torch.device, dtype: torch.dtype) -> float:
    """Estimated time of the step on a device, from its FLOPs and the device's speed."""
    counter = FlopCounterMode(display=False)
    with untouched(step.model), eager(), counter:
        step.execute(step.fresh_batch())
    size = 256
    factor = torch.ones(size, size, device=device, dtype=dtype)
    best = math.inf
    for _ in range(4):  # the first wakes the device, and any may be delayed
        start = perf_counter()
        (factor @ factor).sum().item()
        best = min(best, perf_counter() - start)
    return WORSE * counter.get_total_flops() * best / (2 * size**3)


@contextmanager
def model_on(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Replace a model's parameters, buffers and other tensors by copies on another device."""
    copies: dict[int, Tensor] = {}

    def copied(tensor: Tensor) -> Tensor:
        copy = copies.get(id(tensor))
        if copy is None:
            copy = copies[id(tensor)] = _on(tensor, device)
        return copy

    kept: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for module in model.modules():
            for shelf in (module._parameters, module._buffers, vars(module)):
                for name, value in list(shelf.items()):
                    if isinstance(value, Tensor):
                        other: Any = copied(value)
                    elif type(value) in (list, tuple) and value and all(isinstance(each, Tensor) for each in value):
                        other = type(value)(copied(each) for each in value)  # an LSTM keeps such a list
                    else:
                        continue
                    kept.append((shelf, name, value))
                    shelf[name] = other
        yield
    finally:
        for shelf, name, value in kept:
            shelf[name] = value


def autocast_on(device: str) -> AbstractContextManager[None]:
    """Every autocast in the step is for this kind of device."""
    kind: Any = torch.amp.autocast
    entering, leaving = kind.__enter__, kind.__exit__
    mine = of_this_step()

    def enter(self: Any) -> Any:
        if mine():
            self._left_device, self.device = self.device, device
        return entering(self)

    def leave(self: Any, *error: Any) -> Any:
        try:
            return leaving(self, *error)
        finally:
            self.device = self.__dict__.pop("_left_device", self.device)

    return replaced(kind, __enter__=enter, __exit__=leave)


def nothing_stays_behind(device: str) -> AbstractContextManager[Any]:
    """An operator that computes on this kind of device is an error; empty for no check."""
    return _Elsewhere(device) if device else nullcontext()


class _Elsewhere(TorchDispatchMode):
    def __init__(self, left: str) -> None:
        TorchDispatchMode.__init__(self)
        self._left = left

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and check where its result is."""
        result = func(*args, **(kwargs or {}))
        for item in tree_iter(result):
            # Scalars may be on the CPU anyway.
            if isinstance(item, Tensor) and item.device.type == self._left and item.dim() and can_be_bad(item):
                raise RuntimeError(f"the step always computes on {item.device} ({func})")
        return result


def _on(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on a device, of the same kind and with the same requires_grad."""
    copy = tensor.detach().to(device, copy=True)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(copy, requires_grad=tensor.requires_grad)
    return copy.requires_grad_(tensor.requires_grad)


def _is_random(operator: str, overload: str) -> bool:
    namespace, _, name = operator.partition(".")
    packet = getattr(getattr(torch.ops, namespace, None), name, None)
    return torch.Tag.nondeterministic_seeded in getattr(getattr(packet, overload or "default", None), "tags", ())


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    if device.type != "cpu":
        return 0  # unknown
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
