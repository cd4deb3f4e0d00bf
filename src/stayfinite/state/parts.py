"""Parts of a training, and the names of its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.state.frozen import FrozenMark
from stayfinite.state.shards import is_spread, local_part

WRAPPINGS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


class Stateful(Protocol):
    """Anything with state_dict and load_state_dict."""

    def state_dict(self) -> Any:
        """Its complete state."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Restore the state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingParts:
    """The live objects of one training in this process."""

    model: nn.Module
    """May be wrapped: DDP, compiled, sharded by ``fully_shard``. Names are without wrapper prefixes."""

    optimizer: Optimizer
    """Parameters that are not the model's are saved too, as ``optimizer.extra.0``, ``optimizer.extra.1`` …"""

    scheduler: Stateful | None = None
    """The learning-rate schedule."""

    scaler: GradScaler | None = None
    """For fp16."""

    ema: nn.Module | None = None
    """Averaged weights, changed only after the optimizer's step."""

    extra: Mapping[str, Stateful] = field(default_factory=dict)
    """Other parts to restore: a sampler, a second schedule."""

    keep_frozen: bool = True
    """Whether the state includes parameters that were never trained here. If not, the user loads them, and a
    fingerprint rejects others.
    """

    writes: Callable[[str], bool] | None = None
    """If ranks hold different tensors: whether this rank writes the full tensor of a name. By default rank 0 writes
    all.
    """

    frozen_mark: FrozenMark = field(default_factory=FrozenMark, init=False)
    """Fingerprint of what is left out."""

    _kept: set[str] = field(default_factory=set, init=False)
    """Parameters to keep without ``keep_frozen``: trained at some time, or part of a restored state."""

    exempt: frozenset[str] = field(default=frozenset(), init=False)
    """Buffers (``model.mask``) that are not finite from the start, so infinity in them is fine."""

    def __post_init__(self) -> None:
        odd = {f"model.{name}" for name, buffer in buffers_of(self.model) if not _finite(buffer)}
        if self.ema is not None:
            odd |= {f"ema.{name}" for name, buffer in buffers_of(self.ema, peel=False) if not _finite(buffer)}
        object.__setattr__(self, "exempt", frozenset(odd))
        left_out = self.left_out()
        if any(map(is_spread, left_out.values())):
            self.frozen_mark.of(left_out)  # needs all ranks, which may not be together later

    def named(self) -> dict[str, Tensor]:
        """All parameters by name (tied ones once), then others in the optimizer."""
        named = self._of_the_model()
        known = set(map(id, named.values()))
        strangers = [p for group in self.optimizer.param_groups for p in group["params"] if id(p) not in known]
        return named | {f"optimizer.extra.{i}": p for i, p in enumerate(strangers)}

    def parameters(self) -> dict[str, Tensor]:
        """All named parameters except those left out."""
        left_out = self.left_out()
        return {name: p for name, p in self.named().items() if name not in left_out}

    def left_out(self) -> dict[str, Tensor]:
        """Frozen parameters that are not part of the state; empty with ``keep_frozen``.

        One that was trained is kept, also where it is frozen again: nobody else has its values.
        """
        if self.keep_frozen:
            return {}
        named, moments = self._of_the_model(), self.optimizer.state
        self.keep(name for name, p in named.items() if p.requires_grad or moments.get(p))
        return {name: p for name, p in named.items() if name not in self._kept}

    def keep(self, names: Iterable[str]) -> None:
        """Keep these parameters from now on, also where they are frozen."""
        self._kept.update(names)

    def _of_the_model(self) -> dict[str, Tensor]:
        return {plain_name(name): p for name, p in unwrapped(self.model).named_parameters()}

    def buffers(self) -> dict[str, Tensor]:
        """All persistent buffers."""
        return dict(buffers_of(self.model))

    def averages(self) -> dict[str, Tensor]:
        """Averaged weights and their buffers."""
        return (
            {} if self.ema is None else {**dict(self.ema.named_parameters()), **dict(buffers_of(self.ema, peel=False))}
        )


def stateful(part: object) -> Stateful | None:
    """The part if it has state_dict and load_state_dict, else None."""
    known = callable(getattr(part, "state_dict", None)) and callable(getattr(part, "load_state_dict", None))
    return cast(Stateful, part) if known else None


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DDP, DataParallel and ``torch.compile``."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := model._modules.get("_orig_mod"), nn.Module):
            model = inner
        else:
            return model


def plain_name(name: str) -> str:
    """Name of a tensor without wrapper prefixes."""
    for wrapping in WRAPPINGS:
        name = name.replace(wrapping, "")
    return name


def buffers_of(model: nn.Module, *, peel: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Persistent buffers without duplicates; ``peel`` unwraps DDP and ``torch.compile`` first."""
    seen: set[int] = set()
    for prefix, module in (unwrapped(model) if peel else model).named_modules():
        for name, buffer in module._buffers.items():
            if buffer is None or name in module._non_persistent_buffers_set or id(buffer) in seen:
                continue
            seen.add(id(buffer))
            yield plain_name(f"{prefix}.{name}" if prefix else name), buffer


def modules_with_more(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules with extra state."""
    for name, module in unwrapped(model).named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            yield plain_name(name), module


def _finite(tensor: Tensor) -> bool:
    tensor = local_part(tensor)
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor.float()).all())


@contextmanager
def holding(values: Iterable[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Context in which tensors have these values, copied in place; what they had before is restored bitwise."""
    pairs = [(tensor, value, tensor.detach().clone()) for tensor, value in values]
    try:
        with torch.no_grad():
            for tensor, value, _ in pairs:
                tensor.copy_(value)
        yield
    finally:
        with torch.no_grad():
            for tensor, _, before in pairs:
                tensor.copy_(before)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Context in evaluation mode; each module is in its own mode again afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def is_finite(tensor: Tensor) -> bool:
    """Whether every element of a host tensor is finite; integers always are."""
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.element_size() > 1:
        # Fast path: a finite sum proves it; if the sum overflows, the exact test decides.
        total = tensor.sum(dtype=tensor.dtype if tensor.element_size() > 2 else torch.float32)
        if math.isfinite(total.item()):
            return True
    return bool(torch.isfinite(tensor.to(torch.float32) if tensor.element_size() == 1 else tensor).all())


def finite_flag(tensors: Iterable[Tensor]) -> list[Tensor]:
    """For each device and dtype, a device flag whether all its tensors are finite. No sync."""
    places: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel() and tensor.is_floating_point():
            wide = tensor if tensor.element_size() > 1 else tensor.float()
            places.setdefault((wide.device, wide.dtype), []).append(wide)
    # Unlike a sum of squares, the largest absolute value propagates NaN and cannot overflow.
    return [torch.stack(torch._foreach_norm(group, math.inf)).isfinite().all() for group in places.values()]
