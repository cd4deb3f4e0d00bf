"""A linear layer as another format would compute it: operands rounded, sums in fp32, results rounded.

That is what tensor cores do, so the rounding is the same on any device, a CPU included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from stayfinite.autopsy.steps.changes import other_forwards
from stayfinite.precision.formats import BF16, E4M3, E5M2, FP16, FP32, TF32, Format
from stayfinite.precision.regions import autocast_region


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """In what a linear layer holds its operands and its results."""

    name: str
    operands: Format
    """Of inputs and weights."""
    gradients: Format
    """Of the gradient that comes in."""
    scaling: str = ""
    """Of fp8: one scale for a tensor, or one for each row of a product; empty where operands are cast as they are."""
    results: Format = FP32
    """Of outputs and gradients that go out."""

    @property
    def fp8(self) -> bool:
        """Whether its products are in 8 bits."""
        return bool(self.scaling)


RECIPES: dict[str, Recipe] = {
    each.name: each
    for each in (
        Recipe(name="fp32", operands=FP32, gradients=FP32),
        Recipe(name="tf32", operands=TF32, gradients=TF32),
        Recipe(name="bf16", operands=BF16, gradients=BF16, results=BF16),
        Recipe(name="fp16", operands=FP16, gradients=FP16, results=FP16),
        # As torchao's recipes of these names: e5m2 for gradients with one scale, e4m3 throughout with many.
        Recipe(name="fp8", operands=E4M3, gradients=E5M2, scaling="tensorwise", results=BF16),
        Recipe(name="fp8-rowwise", operands=E4M3, gradients=E4M3, scaling="rowwise", results=BF16),
    )
}
"""What a module may be computed in, by the name that a plan writes."""


@dataclass(frozen=True, slots=True)
class Amax:
    """Largest magnitudes of whole tensors, where a layer is looked at with some of its rows only."""

    input: float
    grad_output: float


class _RoundedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, recipe: Recipe, scale: float, amax: Amax | None
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.recipe, ctx.scale, ctx.amax, ctx.biased = recipe, scale, amax, bias is not None
        known = None if amax is None else amax.input
        with _by_itself(x):
            rows = x.detach().reshape(-1, x.shape[-1])
            product = _held(rows, recipe, recipe.operands, -1, known) @ _held(weight, recipe, recipe.operands, -1).t()
            if bias is not None:
                product = product + bias.float()
            return recipe.results.rounded(product).reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        recipe, scale = ctx.recipe, ctx.scale
        seen, known = (None, None) if ctx.amax is None else (ctx.amax.input, ctx.amax.grad_output * scale)
        with _by_itself(x):
            grad = gradients[0].float().reshape(-1, weight.shape[0]) * scale
            rows = x.reshape(-1, x.shape[-1])
            if not recipe.fp8:
                grad = recipe.gradients.rounded(grad)
            forth, back = (_held(grad, recipe, recipe.gradients, along, known) for along in (-1, 0))
            grad_input = forth @ _held(weight, recipe, recipe.operands, 0)
            grad_weight = back.t() @ _held(rows, recipe, recipe.operands, 0, seen)
            grad_input, grad_weight = (recipe.results.rounded(each) / scale for each in (grad_input, grad_weight))
            grad_bias = grad.sum(0) / scale if ctx.biased else None
            return grad_input.reshape(x.shape), grad_weight, grad_bias, None, None, None


@contextmanager
def _by_itself(x: Tensor) -> Iterator[None]:
    """Nothing casts, and nothing looks at, what is computed within: it stands for one operator.

    The operands are rounded already, and what is left of them goes through a card's TF32 products unchanged.
    """
    matmul = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with autocast_region(x.device.type, None), _disable_current_modes():
            yield
    finally:
        torch.set_float32_matmul_precision(matmul)


def rounded_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, recipe: Recipe, *, scale: float = 1.0, amax: Amax | None = None
) -> Tensor:
    """``F.linear`` as a recipe computes it, in fp32 tensors.

    Arguments:
        x: [..., in].
        weight: [out, in].
        scale: the loss scale that gradients are held at; they come back without it.
        amax: of the whole input and gradient, where ``x`` is a part of it.
    """
    compute: Any = _RoundedLinear.apply
    result: Tensor = compute(x.float(), weight.float(), bias, recipe, scale, amax)
    return result


def _held(matrix: Tensor, recipe: Recipe, kind: Format, along: int, amax: float | None = None) -> Tensor:
    """A matrix as the product gets it; ``along`` is the dimension that is summed over, which shares a scale."""
    if not recipe.fp8:
        return kind.rounded(matrix)
    matrix = matrix.detach().float()
    if recipe.scaling == "rowwise":
        most = matrix.abs().amax(along, keepdim=True).clamp_min(1e-12)
        scale = torch.exp2(torch.floor(torch.log2(kind.largest / most)))  # powers of two, as torchao's
    else:
        most = matrix.abs().amax() if amax is None else torch.tensor(amax, device=matrix.device)
        scale = kind.largest / most.clamp_min(1e-12)
    # Divided by a scale that is no power of two they have more bits again, far below their own rounding.
    return kind.rounded((matrix * scale).clamp(-kind.largest, kind.largest)) / scale


def lost_share(values: Tensor, kind: Format, scale: float = 1.0) -> float:
    """Of the values that are not 0, the share that the format makes 0."""
    values = values.detach().float()
    alive = values != 0
    count = int(alive.sum())
    if not count:
        return 0.0
    return float((alive & (values.abs() * scale <= kind.smallest_subnormal / 2)).sum()) / count


@contextmanager
def linears_as(modules: Mapping[nn.Linear, Recipe], *, half: torch.dtype | None, scale: float) -> Iterator[None]:
    """Within, these layers compute by their recipes, and return what their neighbors compute in.

    Arguments:
        modules: the layers.
        half: what the rest computes in; None for fp32.
        scale: the loss scale that is already in the gradients: rounding is then done as it is.
    """

    def forward_of(module: nn.Linear, recipe: Recipe) -> Any:
        def forward(x: Tensor) -> Tensor:
            if half is not None:
                x = x.to(half)
            product = rounded_linear(x, module.weight, module.bias, recipe, scale=scale)
            return product if half is None or not recipe.fp8 else product.to(half)

        return forward

    with other_forwards({module: forward_of(module, recipe) for module, recipe in modules.items()}):
        yield
