"""One fp32 step with each module's magnitudes and sample rows, and a step under an assignment of formats, compared."""

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
from stayfinite.precision.units import multiplies, units_of

ROWS = 256
"""Rows sampled from a linear layer's input."""
TOP = 16
"""How many of them are the rows with the largest values."""
FEW = 2
"""Entries along the first dimension sampled for other modules."""


@dataclass(slots=True)
class Sample:
    """Part of a module's input, enough to run it again."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rows: Tensor | None
    """Indices of the sampled rows, for a linear layer."""
    grad_output: Tensor | None = None


@dataclass(slots=True)
class Seen:
    """Measurements of one module in one step."""

    name: str
    module: nn.Module
    largest: dict[str, Tensor] = field(default_factory=dict)
    """Largest magnitudes: input, output, grad_output, weight, grad_weight."""
    sample: Sample | None = None
    rows: int = 0
    """Rows multiplied with the weight: tokens or pixels."""
    moved: int = 0
    """Elements read and written."""

    def note(self, what: str, tensor: Tensor) -> None:
        """Update the largest magnitude from a tensor, without a device sync."""
        if tensor.numel() and tensor.is_floating_point():
            most = torch.linalg.vector_norm(tensor.detach(), torch.inf).float()
            self.largest[what] = most if what not in self.largest else torch.maximum(self.largest[what], most)


@dataclass(frozen=True, slots=True)
class FullStep:
    """Result of a step in fp32."""

    loss: float
    gradients: dict[str, Tensor]
    seen: dict[str, Seen]


def full_step(step: Step, *, samples: bool) -> FullStep:
    """Run a step and record each of its modules. Leaves the model unchanged.

    Arguments:
        step: in fp32.
        samples: keep rows of inputs and gradients for trying formats.
    """
    seen = {name: Seen(name, module) for name, module in units_of(step.model)}
    handles = [
        each.module.register_forward_hook(partial(_record_call, each, samples), with_kwargs=True)
        for each in seen.values()
    ]
    gradients: dict[str, Tensor] = {}
    try:
        with untouched(step.model):
            loss = step.execute(step.fresh_batch(), lambda: gradients.update(gradients_of(step.model)))
            for each in seen.values():
                for parameter in each.module.parameters():
                    each.note("weight", parameter)
                    if parameter.grad is not None and not parameter.grad.is_sparse:
                        each.note("grad_weight", parameter.grad)
    finally:
        for handle in handles:
            handle.remove()
    called = {name: each for name, each in seen.items() if "output" in each.largest}
    return FullStep(float(loss.detach().float()), gradients, called)


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    """Dense gradients by name; tied parameters once."""
    return {
        name: p.grad.detach().to_dense() if p.grad.is_sparse else p.grad.detach()
        for name, p in model.named_parameters()
        if p.grad is not None
    }


def _record_call(
    seen: Seen, samples: bool, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> None:
    inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point()]
    outputs = [x for x in (output if isinstance(output, tuple | list) else (output,)) if isinstance(x, Tensor)]
    outputs = [x for x in outputs if x.is_floating_point()]
    for what, tensors in (("input", inputs), ("output", outputs)):
        for x in tensors:
            seen.note(what, x)
            seen.moved += x.numel()
    if not outputs:
        return
    first = outputs[0]
    seen.rows += first.numel() // max(1, _features(module, first))
    # Sample only the first call of a module.
    sample = _sampled(module, args, kwargs) if samples and seen.sample is None and multiplies(module) else None
    if sample is not None:
        seen.sample = sample
    if first.requires_grad:
        first.register_hook(partial(_record_gradient, seen, sample))


def _features(module: nn.Module, output: Tensor) -> int:
    """Width of one output row."""
    wide = getattr(module, "out_features", None) or getattr(module, "out_channels", None)
    if isinstance(wide, int):
        return wide
    return int(output.shape[-1]) if output.dim() else 1


def _record_gradient(seen: Seen, sample: Sample | None, gradient: Tensor) -> None:
    seen.note("grad_output", gradient)
    if sample is not None:
        sample.grad_output = _sampled_rows(gradient.detach(), sample.rows).clone()


def _sampled(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sample | None:
    if not any(isinstance(x, Tensor) and x.is_floating_point() for x in args):
        return None
    rows = _chosen_rows(args[0]) if type(module) is nn.Linear and isinstance(args[0], Tensor) else None

    def part(x: Any) -> Any:
        return _sampled_rows(x.detach(), rows).clone() if isinstance(x, Tensor) and x.dim() else x

    return Sample(tuple(part(x) for x in args), {name: part(x) for name, x in kwargs.items()}, rows)


def _chosen_rows(x: Tensor) -> Tensor:
    """The rows with the largest values, plus evenly spaced ones."""
    flat = x.detach().reshape(-1, x.shape[-1])
    count = flat.shape[0]
    if count <= ROWS:
        return torch.arange(count, device=x.device)
    top = flat.abs().amax(1).topk(TOP).indices
    spaced = torch.linspace(0, count - 1, ROWS - TOP, device=x.device).round().long()
    chosen: Tensor = torch.cat([top, spaced]).unique()
    return chosen


def _sampled_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    if rows is None:
        few: Tensor = x[:FEW]
        return few
    taken: Tensor = x.reshape(-1, x.shape[-1])[rows]
    return taken


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
