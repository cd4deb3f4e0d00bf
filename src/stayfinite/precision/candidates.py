"""Run a step under an assignment of formats and compare it with the same step in fp32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from stayfinite.autopsy.steps.changes import in_full, other_forwards
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.inspection.probes.operators import Operation, RangeWatch
from stayfinite.precision.emulating import RECIPES, Recipe, autocast_region, linears_as
from stayfinite.precision.formats import FP16
from stayfinite.precision.measuring import FullStep, gradients_of
from stayfinite.precision.units import units_of

HEADROOM = 0.5
"""Share of fp16's range a plan may use, since values grow during training."""
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The format of each module."""

    base: str
    """Format of all other modules: fp32, tf32, bf16 or fp16. The last two use autocast."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """Modules in another format: fp32, fp8 or fp8-rowwise."""

    def named(self, *formats: str) -> list[str]:
        """Names of the modules in any of these formats."""
        return [name for name, kind in self.formats.items() if kind in formats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Error of an assignment against fp32."""

    loss: float = 0.0
    """Relative error of the loss."""
    cosine: float = 1.0
    """Cosine between the two gradients, over all parameters."""
    gradient: float = 0.0
    """Relative error of the gradient."""
    overflowing: tuple[str, ...] = ()
    """Modules that overflow fp16 or come close."""

    def merged(self, other: Loss) -> Loss:
        """The elementwise worse of the two."""
        return Loss(
            loss=max(self.loss, other.loss),
            cosine=min(self.cosine, other.cosine),
            gradient=max(self.gradient, other.gradient),
            overflowing=tuple(dict.fromkeys((*self.overflowing, *other.overflowing))),
        )


def run_candidate(step: Step, assignment: Assignment, full: FullStep, *, scale: float) -> Loss:
    """Run the step under an assignment and compare it with fp32. Leaves the model unchanged.

    Arguments:
        step: in fp32.
        full: its result in fp32.
        scale: the loss scale, used for fp16 only.
    """
    model, half = step.model, HALVES.get(assignment.base)
    device = next((p.device.type for p in model.parameters()), "cpu")
    scale = scale if half is torch.float16 else 1.0
    around: list[Callable[[], AbstractContextManager[Any]]] = [
        partial(linears_as, _recipes(model, assignment), half=half),
        partial(modules_in_full, model, assignment.named("fp32"), device),
    ]
    # A CPU has no fast half-precision products, so the rounding is emulated there.
    watch = RangeWatch(model) if half is not None and (half is torch.float16 or device == "cpu") else None
    if watch is not None:
        around.append(lambda: watch)
    gradients: dict[str, Tensor] = {}

    def then() -> None:
        if watch is not None:
            watch.close()
        gradients.update(gradients_of(model))

    changed = step.changed(*around, autocast=partial(autocast_region, device, half), scale=scale)
    with untouched(model):
        loss = float(changed.execute(step.fresh_batch(), then).detach().float())
    cosine, error = _cosine_and_error(gradients, full.gradients, scale)
    return Loss(
        loss=abs(loss - full.loss) / max(abs(full.loss), 1e-12) if math.isfinite(loss) else math.inf,
        cosine=cosine,
        gradient=error,
        overflowing=_overflowing(model, watch.seen) if watch is not None and half is torch.float16 else (),
    )


def _recipes(model: nn.Module, assignment: Assignment) -> dict[nn.Linear, Recipe]:
    recipes = {}
    for name, module in units_of(model):
        kind = assignment.formats.get(name, "tf32" if assignment.base == "tf32" else "")
        if isinstance(module, nn.Linear) and (kind == "tf32" or kind.startswith("fp8")):
            recipes[module] = RECIPES[kind]
    return recipes


@contextmanager
def modules_in_full(model: nn.Module, names: list[str], device: str) -> Iterator[None]:
    """Make these modules compute in fp32 within this context."""

    def forward_of(computing: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = tree_map(in_full, (args, kwargs))
            with autocast_region(device, None):
                return computing(*args, **kwargs)

        return forward

    modules = [model.get_submodule(name) for name in names]
    with other_forwards({module: forward_of(module.forward) for module in modules}):
        yield


def _cosine_and_error(gradients: Mapping[str, Tensor], full: Mapping[str, Tensor], scale: float) -> tuple[float, float]:
    """Cosine and relative error of a gradient against the reference."""
    dot = own = exact = apart = 0.0
    for name, reference in full.items():
        given = gradients.get(name)
        mine = torch.zeros_like(reference, dtype=torch.float32) if given is None else given.float() / scale
        reference = reference.float()
        dot += float((mine * reference).sum(dtype=torch.float64))
        own += float(torch.linalg.vector_norm(mine, dtype=torch.float64)) ** 2
        exact += float(torch.linalg.vector_norm(reference, dtype=torch.float64)) ** 2
        apart += float(torch.linalg.vector_norm(mine - reference, dtype=torch.float64)) ** 2
    if not all(map(math.isfinite, (dot, own, apart))):
        return -1.0, math.inf
    if not exact:
        return (1.0, 0.0) if not own else (0.0, math.inf)
    return (dot / math.sqrt(own * exact) if own else 0.0), math.sqrt(apart / exact)


def _overflowing(model: nn.Module, seen: list[Operation]) -> tuple[str, ...]:
    """Modules with values near the end of fp16's range.

    Operations between modules count for the module before them: if its output is in fp32, so are they.
    """
    units = {name for name, _ in units_of(model)}
    before, found = "", []
    for operation in seen:
        if operation.backward:
            continue
        unit = operation.module
        while unit and unit not in units:
            unit = unit.rpartition(".")[0]
        before = unit or before
        near = operation.dtype is torch.float16 and operation.largest > HEADROOM * FP16.largest
        if (near or operation.leaves) and before:
            found.append(before)
    return tuple(dict.fromkeys(found))
