"""What is on record about a planted fault, and the list of them all."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.step import Step
from stayfinite.state.rng import capture_rng

MARKER = "# planted here"

HALF = partial(torch.autocast, "cpu", torch.float16)
"""Autocast to fp16, as a guard would enter it."""
BRAIN = partial(torch.autocast, "cpu", torch.bfloat16)

MATMUL = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.linear")
"""A matrix product is one of these, by its shapes and its bias."""

OVERFLOW = ("fp16-overflow",)
POISONED = ("nan-weights", "poisoned-checkpoint")
ROW = ("bad-data-row",)
SINGULAR = ("loss-formula-singularity",)

WIDER = ("fp32", "bf16", "origin_fp32", "origin_guarded")
"""Worlds in which fp16's range does not matter."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A training step with a fault in it, and what an autopsy has to find."""

    step: Step
    cause: tuple[str, ...]
    """Slugs that are right; mostly one."""
    operator: tuple[str, ...] = ()
    """Names of the origin that are right; none when the step itself is finite or nothing is to be said."""
    forward_operator: tuple[str, ...] = ()
    """Of an origin in the backward pass: the operator whose derivative it is."""
    module: tuple[str, ...] = ("",)
    phase: str = "forward"
    rows: tuple[int, ...] | None = None
    """Rows of the batch that are guilty; None where the rows are not to blame."""
    materials: Mapping[str, Any] = field(default_factory=dict)
    fix: bool = True
    """Whether a world can show that a change makes the step finite."""
    fixed_by: tuple[str, ...] = ()
    """Worlds that may stand behind the fix; any of them when empty."""


@dataclass(frozen=True, kw_only=True)
class LookAlike:
    """A healthy training step that looks sick to a hasty eye."""

    step: Step


@dataclass(frozen=True)
class Entry:
    """A function that plants something, by name."""

    name: str
    build: Callable[[], Any]

    def __call__(self) -> Any:
        torch.manual_seed(0)
        random.seed(0)
        return self.build()

    @property
    def file(self) -> str:
        return str(inspect.getsourcefile(self.build))

    @property
    def line(self) -> int | None:
        """The marked line of its own source."""
        lines, first = inspect.getsourcelines(self.build)
        marked = [first + at for at, text in enumerate(lines) if text.rstrip().endswith(MARKER)]
        assert len(marked) <= 1, f"{self.name} marks {len(marked)} lines"
        return marked[0] if marked else None


FAULTS: dict[str, Entry] = {}
LOOK_ALIKES: dict[str, Entry] = {}


def fault(build: Callable[[], Planted]) -> Callable[[], Planted]:
    """Put a fault on the list."""
    return _enter(FAULTS, build)


def look_alike(build: Callable[[], LookAlike]) -> Callable[[], LookAlike]:
    """Put a healthy step on the list."""
    return _enter(LOOK_ALIKES, build)


def _enter(where: dict[str, Entry], build: Callable[[], Any]) -> Callable[[], Any]:
    assert build.__name__ not in where
    where[build.__name__] = Entry(build.__name__, build)
    return build


def a_step(model: nn.Module, forward: Callable[[Any], Tensor], batch: Any, **settings: Any) -> Step:
    """The step, with the random numbers as they stand now."""
    return Step(model=model, forward=forward, batch=batch, rng=capture_rng(), **settings)


def copy_of(model: nn.Module) -> dict[str, Tensor]:
    """Its parameters and buffers as they are now."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
