"""Snapshots of the user's frames at the start of a step and at backward, and all that a step trains as one model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.doctor.record import Program
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.inspection.bench.graph_walk import nodes_from


def share_nodes(one: Any, other: Any) -> bool:
    """Whether two graphs share more than leaves, so that backward through one would free the other."""
    if one is None or other is None:
        return False
    theirs = nodes_from(other)
    return any(node in theirs and getattr(node, "variable", None) is None for node in nodes_from(one))


@dataclass(slots=True)
class Held:
    """A user frame and its variables."""

    frame_id: int
    code: CodeType
    line: int
    names: dict[str, Any]
    """Local variables."""
    everywhere: dict[str, Any]
    """Globals of the frame's module, not copied."""


@dataclass(slots=True)
class Moment:
    """The user's frames at one moment, innermost first."""

    frames: list[Held]
    rng: dict[str, Any] | None = None
    """Random generator states."""

    def of(self, frame_id: int, code: CodeType) -> Held | None:
        """The same frame at this moment, or None."""
        return next((held for held in self.frames if held.frame_id == frame_id and held.code is code), None)


@dataclass(slots=True)
class Backward:
    """One backward call."""

    at: Moment
    loss: Tensor
    """Detached."""
    began: Moment | None
    """The last moment between two steps before it."""
    batch_came: Moment | None
    """When a loader last yielded a batch, if later."""
    drawn: dict[int, Any] = field(default_factory=dict)
    """Last batch by ``id`` of the loader's iterator."""
    batches: dict[int, Any] = field(default_factory=dict)
    """Last batch by ``id`` of the loader."""
    scaler: tuple[Any, float] | None = None
    """The GradScaler that last scaled a loss, and its scale then."""
    graph: Any = None
    """Root of the program's graph, until backward has freed it."""

    def batch_of(self, loader: Any) -> tuple[bool, Any]:
        """Whether a loader has yielded a batch, and the last one."""
        known = loader is not None and id(loader) in self.batches
        return known, self.batches.get(id(loader))


@dataclass(slots=True)
class Early:
    """An early backward call with the state before it."""

    backward: Backward
    weights: dict[int, Tensor]
    """Weights by ``id``; empty if too large to copy."""
    modes: dict[int, bool]
    """``training`` flag by ``id`` of the module."""
    optimizer: Any = None
    """The optimizer that took the next step."""


def moment(frames: list[FrameType], rng: dict[str, Any] | None = None) -> Moment:
    """Snapshot of frames. Values are referenced, not copied."""
    return Moment(
        [Held(id(f), f.f_code, f.f_lineno, dict(f.f_locals), f.f_globals) for f in frames[:8]],
        rng,
    )


def meet_backward(stand_ins: StandIns, meet: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Let every backward pass go through ``meet(original, loss, args, kwargs)``."""

    def by_tensor(original: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        return meet(original, loss, (loss, *args), kwargs)

    def by_function(original: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = args[0] if args else kwargs.get("tensors")
        first = tensors if isinstance(tensors, Tensor) or not tensors else tensors[0]
        return meet(original, first, args, kwargs)

    stand_ins.put(Tensor, "backward", by_tensor)
    stand_ins.put(torch.autograd, "backward", by_function)


class Together(nn.Module):
    """Several modules, and tensors outside any module, as one.

    Arguments:
        modules: by name.
        loose: trainable leaf tensors, by name.
    """

    def __init__(self, modules: dict[str, nn.Module], loose: dict[str, Tensor]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name.replace(".", "_"), module)
        self._loose = loose
        self.training = any(module.training for module in modules.values()) or not modules

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Parameters of the modules, then the loose tensors."""
        yield from super().named_parameters(prefix, recurse, remove_duplicate)
        for name, tensor in self._loose.items():
            yield f"{prefix}.{name}" if prefix else name, tensor


def whole_model(program: Program, backward: Backward) -> nn.Module:
    """Everything the program trains, as one module."""
    names = names_in(backward)
    modules: dict[str, nn.Module] = {}
    for seen in program.models.values():
        modules.setdefault(names.get(id(seen.module), f"model{len(modules)}"), seen.module)
    for held in backward.at.frames:
        for name, value in held.names.items():
            for key, each in _modules_in(name, value):
                if each is not None and not any(each is known for known in modules.values()):
                    modules.setdefault(key, each)
    whole = modules.values()
    modules = {name: module for name, module in modules.items() if not inside_another(module, whole)}
    inside = {id(p) for module in modules.values() for p in module.parameters()}
    loose: dict[str, Tensor] = {}
    for seen_optimizer in program.optimizers.values():
        for p in seen_optimizer.parameters:
            if id(p) not in inside and all(p is not other for other in loose.values()):
                loose[names.get(id(p), f"parameter{len(loose)}")] = p
    for held in backward.at.frames:
        for name, value in held.names.items():
            values = value if isinstance(value, list | tuple) and len(value) <= 64 else [value]
            for each in values:
                learns = isinstance(each, Tensor) and each.requires_grad and each.is_leaf and id(each) not in inside
                if learns and all(each is not other for other in loose.values()):
                    loose[name if name not in loose else f"{name}{len(loose)}"] = each
    if len(modules) == 1 and not loose:
        return next(iter(modules.values()))
    return Together(modules, loose)


def names_in(backward: Backward) -> dict[int, str]:
    """The program's names for its modules and tensors, by ``id``."""
    names: dict[int, str] = {}
    for held in reversed(backward.at.frames):
        for name, value in held.names.items():
            if isinstance(value, nn.Module | Tensor):
                names[id(value)] = name
            elif name == "self" or type(value).__module__ == held.everywhere.get("__name__"):
                before = "" if name == "self" else f"{name}."
                attributes = getattr(value, "__dict__", {})
                names.update(
                    {id(v): f"{before}{k}" for k, v in attributes.items() if isinstance(v, nn.Module | Tensor)}
                )
    return names


def _modules_in(name: str, value: Any) -> list[tuple[str, nn.Module]]:
    if isinstance(value, nn.Module):
        return [(name, value)]
    if name == "self":
        return [(k, v) for k, v in getattr(value, "__dict__", {}).items() if isinstance(v, nn.Module)]
    return []


def inside_another(module: nn.Module, modules: Iterable[nn.Module]) -> bool:
    """Whether a module is part of another one of these."""
    return any(other is not module and any(part is module for part in other.modules()) for other in modules)
