"""What one module loses by itself in another format: its output and its gradients, against fp32 on the same rows."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.inspection.probes.operators import RangeWatch
from stayfinite.precision.emulating import Amax, Recipe, lost_share, rounded_linear
from stayfinite.precision.measuring import Sample, Seen
from stayfinite.precision.regions import autocast_region

CENTRED = 4
"""Rows from which on a part that all of them share is taken off: it carries nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalError:
    """Relative errors, 1 where nothing is left of the values; infinite where they do not fit."""

    output: float = 0.0
    grad_input: float = 0.0
    grad_weight: float = 0.0
    lost: float = 0.0
    """The largest share of inputs, weights or gradients that becomes 0."""

    @property
    def worst(self) -> float:
        """The largest of the three."""
        return max(self.output, self.grad_input, self.grad_weight)

    def merged(self, other: LocalError) -> LocalError:
        """The worse of two, in each."""
        mine, others = asdict(self), asdict(other)
        return LocalError(**{name: max(mine[name], others[name]) for name in mine})


def local_error(seen: Seen, recipe: Recipe, scale: float) -> LocalError | None:
    """What this module loses in a format; None where it cannot be run by itself, or the format is for others.

    Arguments:
        scale: the loss scale, for gradients in fp16.
    """
    sample = seen.sample
    if sample is None or sample.grad_output is None:
        return None
    scale = scale if recipe.name == "fp16" else 1.0
    module = seen.module
    try:
        if sample.rows is not None and isinstance(module, nn.Linear):
            return _of_linear(module, sample, seen, recipe, scale)
        if recipe.fp8 or recipe.name == "tf32":
            return None
        return _of_any(module, sample, recipe, scale)
    except Exception:  # whatever a module may raise that is called with a part of its batch
        return None


def _of_linear(module: nn.Linear, sample: Sample, seen: Seen, recipe: Recipe, scale: float) -> LocalError:
    x, gradient = sample.args[0].float(), sample.grad_output
    assert gradient is not None
    weight, bias = (None if p is None else p.detach().float() for p in (module.weight, module.bias))
    assert weight is not None
    amax = Amax(float(seen.largest["input"]), float(seen.largest["grad_output"]))
    with torch.enable_grad():
        x_in, w_in = x.clone().requires_grad_(), weight.clone().requires_grad_()
        y = rounded_linear(x_in, w_in, bias, recipe, scale=scale, amax=amax)
        grad_input, grad_weight = torch.autograd.grad(y, (x_in, w_in), gradient.float())
    with torch.no_grad():
        exact = nn.functional.linear(x, weight, bias)
        full = gradient.float()
        lost = (
            lost_share(x, recipe.operands, recipe.operands.largest / max(amax.input, 1e-30) if recipe.fp8 else 1.0),
            lost_share(
                full, recipe.gradients, recipe.gradients.largest / max(amax.grad_output, 1e-30) if recipe.fp8 else scale
            ),
        )
        return LocalError(
            output=_of_rows(y.detach(), exact),
            grad_input=_of_all(grad_input, full @ weight),
            grad_weight=_of_all(grad_weight, full.t() @ x),
            lost=0.0 if recipe.scaling == "rowwise" else max(lost),
        )


def _of_any(module: nn.Module, sample: Sample, recipe: Recipe, scale: float) -> LocalError:
    exact = _run(module, sample, None, 1.0)
    rounded = _run(module, sample, recipe, scale)
    output = _of_all(rounded[0], exact[0])
    return LocalError(
        output=output,
        grad_input=max((_of_all(a, b) for a, b in zip(rounded[1], exact[1], strict=True)), default=0.0),
        grad_weight=max((_of_all(a, b) for a, b in zip(rounded[2], exact[2], strict=True)), default=0.0),
    )


def _run(
    module: nn.Module, sample: Sample, recipe: Recipe | None, scale: float
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Output, and gradients of inputs and weights, without the loss scale."""
    gradient = sample.grad_output
    assert gradient is not None
    dtype = torch.float32 if recipe is None else recipe.operands.dtype
    leaves: list[Tensor] = []

    def cast(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        leaves.append(x.detach().float().requires_grad_())
        return leaves[-1].to(dtype)

    weights = [p for p in module.parameters() if p.requires_grad]
    region = nullcontext() if recipe is None else autocast_region(gradient.device.type, dtype)
    watch = nullcontext() if recipe is None or gradient.is_cuda else RangeWatch(module)
    with torch.enable_grad(), watch:
        with region:
            output = module(*(cast(x) for x in sample.args), **{name: cast(x) for name, x in sample.kwargs.items()})
        first: Tensor = output[0] if isinstance(output, tuple | list) else output
        given = (gradient.float() * scale).to(first.dtype)
        found = torch.autograd.grad(first, [*leaves, *weights], given, allow_unused=True)
    plain = [torch.zeros(()) if x is None else x.detach().float() / scale for x in found]
    return first.detach().float(), plain[: len(leaves)], plain[len(leaves) :]


def _of_all(rounded: Tensor, exact: Tensor) -> float:
    size = float(torch.linalg.vector_norm(exact.float()))
    error = float(torch.linalg.vector_norm(rounded.float() - exact.float()))
    if not math.isfinite(error):
        return math.inf
    return error / size if size > 0 else 0.0


def _of_rows(rounded: Tensor, exact: Tensor) -> float:
    """The error of a row on average over rows: of all of it, and of what tells it from the others; the larger.

    An error that all rows share is a shift, and is held against the whole.
    """
    if not bool(rounded.isfinite().all()):
        return math.inf
    error = rounded - exact
    whole = _mean_ratio(error, exact)
    if exact.shape[0] < CENTRED:
        return whole
    apart = exact - exact.mean(0)
    # Rows that are all the same say nothing of what is lost between them.
    if float(_lengths(apart).median()) <= 1e-5 * float(_lengths(exact).median()):
        return whole
    return max(whole, _mean_ratio(error - error.mean(0), apart))


def _mean_ratio(error: Tensor, exact: Tensor) -> float:
    """Of rows; one counts for 1 at most."""
    size = _lengths(exact)
    counted = size > 1e-3 * size.median()
    if not bool(counted.any()):
        return 0.0
    return float((_lengths(error)[counted] / size[counted]).clamp(max=1.0).mean())


def _lengths(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return lengths
