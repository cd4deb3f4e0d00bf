"""What a program's frames held at two moments of a step: where it began, and where backward was called."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from torch import Tensor


@dataclass(slots=True)
class Held:
    """One frame of the user's, and what its names stood for."""

    frame_id: int
    code: CodeType
    line: int
    names: dict[str, Any]
    """The frame's own names."""
    everywhere: dict[str, Any]
    """The names of its module, not copied."""


@dataclass(slots=True)
class Moment:
    """The user's frames at one moment, the innermost first."""

    frames: list[Held]
    rng: dict[str, Any] | None = None
    """The generators."""

    def of(self, frame_id: int, code: CodeType) -> Held | None:
        """The same frame, at this moment."""
        return next((held for held in self.frames if held.frame_id == frame_id and held.code is code), None)


@dataclass(slots=True)
class Backward:
    """One call of backward."""

    at: Moment
    loss: Tensor
    """Detached."""
    began: Moment | None
    """The last moment between two steps before it."""
    batch_came: Moment | None
    """The last moment a loader gave a batch, if that was later."""
    drawn: dict[int, Any] = field(default_factory=dict)
    """By the ``id`` of a loader's iterator, the batch that it gave last, ..."""
    batches: dict[int, Any] = field(default_factory=dict)
    """... and by the ``id`` of the loader itself."""
    graph: Any = None
    """The last node of the program's own graph, while that has yet to be walked backwards."""

    def batch_of(self, loader: Any) -> tuple[bool, Any]:
        """The last batch that a loader had given, if it is one and gave any."""
        known = loader is not None and id(loader) in self.batches
        return known, self.batches.get(id(loader))


@dataclass(slots=True)
class Early:
    """A backward of the beginning, with what it began with."""

    backward: Backward
    weights: dict[int, Tensor]
    """By ``id``; empty where they are too large to copy."""
    modes: dict[int, bool]
    """By ``id`` of a module: whether it was training."""
    optimizer: Any = None
    """The one that took the next step."""


def moment(frames: list[FrameType], rng: dict[str, Any] | None = None) -> Moment:
    """Write down what frames hold; values are held, not copied."""
    return Moment(
        [Held(id(f), f.f_code, f.f_lineno, dict(f.f_locals), f.f_globals) for f in frames[:8]],
        rng,
    )


def loss_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The loss among the arguments of ``torch.autograd.backward``: its first tensor; None where there is none."""
    tensors = args[0] if args else kwargs.get("tensors")
    if isinstance(tensors, Tensor):
        return tensors
    return tensors[0] if tensors else None
