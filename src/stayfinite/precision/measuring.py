"""Run one fp32 step and record each module's magnitudes, with sample rows for trying formats."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.step import Step, untouched
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
