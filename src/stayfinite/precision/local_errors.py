"""Error of a single module in another format: its output and gradients against fp32, on the same rows."""

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
"""From this many rows on, the error is also measured without the rows' common mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalError:
    """Relative errors: 1 if nothing of the values is left, infinite on overflow."""

    output: float = 0.0
    grad_input: float = 0.0
    grad_weight: float = 0.0
    lost: float = 0.0
    """Largest share of inputs, weights or gradients that becomes 0."""

    @property
    def worst(self) -> float:
        """The largest of the three errors."""
        return max(self.output, self.grad_input, self.grad_weight)

    def merged(self, other: LocalError) -> LocalError:
        """The elementwise worse of the two."""
        mine, others = asdict(self), asdict(other)
        return LocalError(**{name: max(mine[name], others[name]) for name in mine})


def local_error(seen: Seen, recipe: Recipe, scale: float) -> LocalError | None:
    """Error of this module in a format, or None if it cannot be run alone or the format does not apply.

    Arguments:
        scale: the loss scale, used for fp16 only.
    """
    sample = seen.sample
    if sample is None or sample.grad_output is None:
        return None
    scale = scale if recipe.name == "fp16" else 1.0
    module = seen.module
    try:
        if sample.rows is not None and isinstance(module, nn.Linear):
            return _error_of_linear(module, sample, seen, recipe, scale)
        if recipe.fp8 or recipe.name == "tf32":
            return None
        return _error_of_module(module, sample, recipe, scale)
    except Exception:  # a module may raise anything when called with part of its batch
        return None


def _error_of_linear(module: nn.Linear, sample: Sample, seen: Seen, recipe: Recipe, scale: float) -> LocalError:
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
            output=_row_error(y.detach(), exact),
            grad_input=_relative_error(grad_input, full @ weight),
            grad_weight=_relative_error(grad_weight, full.t() @ x),
            lost=0.0 if recipe.scaling == "rowwise" else max(lost),
        )


def _error_of_module(module: nn.Module, sample: Sample, recipe: Recipe, scale: float) -> LocalError:
    exact = _run(module, sample, None, 1.0)
    rounded = _run(module, sample, recipe, scale)
    output = _relative_error(rounded[0], exact[0])
    return LocalError(
        output=output,
        grad_input=max((_relative_error(a, b) for a, b in zip(rounded[1], exact[1], strict=True)), default=0.0),
        grad_weight=max((_relative_error(a, b) for a, b in zip(rounded[2], exact[2], strict=True)), default=0.0),
    )


def _run(
    module: nn.Module, sample: Sample, recipe: Recipe | None, scale: float
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Output, input gradients and weight gradients, with the loss scale removed."""
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


def _relative_error(rounded: Tensor, exact: Tensor) -> float:
    size = float(torch.linalg.vector_norm(exact.float()))
    error = float(torch.linalg.vector_norm(rounded.float() - exact.float()))
    if not math.isfinite(error):
        return math.inf
    return error / size if size > 0 else 0.0


def _row_error(rounded: Tensor, exact: Tensor) -> float:
    """Mean error of a row: relative to the whole row and to its deviation from the mean row, whichever is larger.

    An error shared by all rows is a shift, and counts against the whole row only.
    """
    if not bool(rounded.isfinite().all()):
        return math.inf
    error = rounded - exact
    whole = _mean_ratio(error, exact)
    if exact.shape[0] < CENTRED:
        return whole
    apart = exact - exact.mean(0)
    # Identical rows do not show what is lost between them.
    if float(_lengths(apart).median()) <= 1e-5 * float(_lengths(exact).median()):
        return whole
    return max(whole, _mean_ratio(error - error.mean(0), apart))


def _mean_ratio(error: Tensor, exact: Tensor) -> float:
    """Mean over rows of the relative error, clamped to 1."""
    size = _lengths(exact)
    counted = size > 1e-3 * size.median()
    if not bool(counted.any()):
        return 0.0
    return float((_lengths(error)[counted] / size[counted]).clamp(max=1.0).mean())


def _lengths(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return lengths
