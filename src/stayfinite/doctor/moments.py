"""Snapshots of the user's frames at the start of a step and at backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

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
