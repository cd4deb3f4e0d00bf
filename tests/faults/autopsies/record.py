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
    cause: tuple[str, ...] = ()
    """Slugs that are right; mostly one, and none for a healthy step."""
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


Built = Step | tuple[Step, dict[str, Any]]
"""A step, with materials that only its builder has."""


@dataclass(frozen=True)
class Entry:
    """A function that builds a step, by name, and what is on record about it."""

    name: str
    build: Callable[[], Built]
    record: Mapping[str, Any]

    def __call__(self) -> Planted:
        torch.manual_seed(0)
        random.seed(0)
        built = self.build()
        step, more = built if isinstance(built, tuple) else (built, {})
        return Planted(step=step, **{**self.record, "materials": {**self.record.get("materials", {}), **more}})

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


def fault(**record: Any) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Put a fault on the list, with what an autopsy has to find: fields of ``Planted``, where one value is a tuple."""
    several = {name: (value,) for name, value in record.items() if type(value) in (str, int) and name != "phase"}

    def enter(build: Callable[[], Built]) -> Callable[[], Built]:
        return _enter(FAULTS, build, record | several)

    return enter


def look_alike(build: Callable[[], Built]) -> Callable[[], Built]:
    """Put a healthy step that looks sick to a hasty eye on the list."""
    return _enter(LOOK_ALIKES, build, {})


def _enter(where: dict[str, Entry], build: Callable[[], Built], record: dict[str, Any]) -> Callable[[], Built]:
    assert build.__name__ not in where
    where[build.__name__] = Entry(build.__name__, build, record)
    return build


def a_step(model: nn.Module, forward: Callable[[Any], Tensor], batch: Any, **settings: Any) -> Step:
    """The step, with the random numbers as they stand now."""
    return Step(model=model, forward=forward, batch=batch, rng=capture_rng(), **settings)


def copy_of(model: nn.Module) -> dict[str, Tensor]:
    """Its parameters and buffers as they are now."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
