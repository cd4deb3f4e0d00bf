"""Each module in each format: the error of its output and gradients against fp32, and the formats that break it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.errors import UsageError
from stayfinite.inspection.probes.operators import RangeWatch
from stayfinite.precision.candidates import HEADROOM, FullStep, Sample, Seen
from stayfinite.precision.emulating import RECIPES, Amax, Recipe, autocast_region, lost_share, rounded_linear
from stayfinite.precision.formats import FP16
from stayfinite.precision.plan import Row
from stayfinite.precision.speed import Work, work_of
from stayfinite.precision.units import multiplies

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
    output, grad_input, grad_weight = (
        max((_relative_error(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)
        for ours, theirs in zip(rounded, exact, strict=True)
    )
    return LocalError(output=output, grad_input=grad_input, grad_weight=grad_weight)


def _run(
    module: nn.Module, sample: Sample, recipe: Recipe | None, scale: float
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Output (alone in its list), input gradients and weight gradients, with the loss scale removed."""
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
    return [first.detach().float()], plain[: len(leaves)], plain[len(leaves) :]


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


LARGEST_SCALE = 2.0**24
COARSER = 20.0
"""fp8 error over bf16 error explained by 3 fraction bits instead of 7: 16, plus some margin."""


class ModulesSeen:
    """Accumulates over batches and measuring points.

    Arguments:
        allowed: the formats to consider.
        most: relative error of a module's output or gradients above which the format breaks it.
    """

    def __init__(self, allowed: tuple[str, ...], most: float) -> None:
        self._allowed, self._most = allowed, most
        self._largest: dict[str, dict[str, float]] = {}
        self.errors: dict[str, dict[str, LocalError]] = {}
        self.works: dict[str, Work] = {}
        self.modules: dict[str, nn.Module] = {}
        self.breaks: dict[str, dict[str, str]] = {}
        """Formats that break a module, with the reason."""
        self.scale = LARGEST_SCALE
        """Largest power of two that keeps all gradients of products well within fp16's range."""

    def take_in(self, found: FullStep) -> None:
        """Add the fp32 step of one batch.

        Raises:
            UsageError: the loss is not finite or a value is NaN. An infinity may be a mask.
        """
        if not math.isfinite(found.loss):
            raise _not_finite(f"the loss is {found.loss}")
        for name, seen in found.seen.items():
            self.modules[name] = seen.module
            mine = self._largest.setdefault(name, {})
            for what, value in seen.largest.items():
                if math.isnan(largest := float(value)):
                    raise _not_finite(f"{what} of {name or 'the model'} is NaN")
                mine[what] = max(mine.get(what, 0.0), largest)
            self.works[name] = work_of(name, seen.module, seen.rows, seen.moved)

    def try_formats(self, first: FullStep) -> None:
        """Measure each module alone in each format."""
        self.scale = min(self.scale, self._loss_scale())
        wanted = [kind for kind in RECIPES if kind != "fp32" and kind.partition("-")[0] in self._allowed]
        for name, seen in first.seen.items():
            for kind in wanted:
                error = local_error(seen, RECIPES[kind], self.scale)
                if error is None:
                    continue
                mine = self.errors.setdefault(name, {})
                mine[kind] = error if kind not in mine else mine[kind].merged(error)
                if mine[kind].worst > self._limit(mine, kind):
                    self.mark(name, kind, _why(mine[kind]))
            seen.sample = None
        for name, largest in self._largest.items():
            most = max((largest.get(what, 0.0) for what in ("input", "weight", "output")), default=0.0)
            if "fp16" in self._allowed and multiplies(self.modules[name]) and most > HEADROOM * FP16.largest:
                self.mark(name, "fp16", f"{most:.3g} of {FP16.largest:.0f}")

    def _limit(self, mine: Mapping[str, LocalError], kind: str) -> float:
        """Relative error above which a format breaks a module.

        Twice the usual limit if fp8 is merely coarser than bf16 and loses nothing to its range: early in training all
        rows are nearly equal, and their differences are small in any format.
        """
        half = mine.get("bf16")
        coarse = kind.startswith("fp8") and half is not None and mine[kind].worst <= COARSER * half.worst
        return 2 * self._most if coarse else self._most

    def mark(self, name: str, kind: str, why: str) -> None:
        """Record that a format breaks a module; the first reason is kept."""
        self.breaks.setdefault(name, {}).setdefault(kind, why)

    def broken(self, kind: str) -> list[str]:
        """Modules that break in a format."""
        return [name for name, reasons in self.breaks.items() if kind in reasons]

    def ranked(self, kind: str, kept: Mapping[str, str]) -> list[str]:
        """The other modules with matrix products, largest error in the format first."""
        errors = {name: each[kind].worst for name, each in self.errors.items() if kind in each and name not in kept}
        rest = [name for name in self.works if multiplies(self.modules[name]) and name not in {**kept, **errors}]
        return [*sorted(errors, key=lambda name: -errors[name]), *rest]

    def rows(self) -> Iterator[Row]:
        """Rows of the plan's table."""
        for name, largest in self._largest.items():
            errors = {kind: asdict(error) for kind, error in self.errors.get(name, {}).items()}
            breaks = self.breaks.get(name, {})
            kind = type(self.modules[name]).__name__
            yield Row(name=name, kind=kind, largest=dict(largest), errors=errors, breaks=dict(breaks))

    def _loss_scale(self) -> float:
        products = [each for name, each in self._largest.items() if multiplies(self.modules[name])]
        most = max((each.get(what, 0.0) for each in products for what in ("grad_output", "grad_weight")), default=0.0)
        if not 0 < most < math.inf:
            return 1.0
        return min(LARGEST_SCALE, max(1.0, 2.0 ** math.floor(math.log2(HEADROOM * FP16.largest / most))))


def _not_finite(what: str) -> UsageError:
    return UsageError(f"{what} in fp32", fix="`stayfinite check --build` says why")


def _why(error: LocalError) -> str:
    errors = (error.output, error.grad_input, error.grad_weight)
    what = ("output", "gradient of its input", "gradient of its weight")[errors.index(error.worst)]
    lost = f", {error.lost:.0%} of values become 0" if error.lost >= 0.01 else ""
    return f"{what} does not fit{lost}" if math.isinf(error.worst) else f"{what} {error.worst:.0%} off{lost}"
