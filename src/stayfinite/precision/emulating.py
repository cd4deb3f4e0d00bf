"""Autocast that stays in effect when the training's own autocast is disabled."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from stayfinite.autopsy.steps.changes import other_forwards
from stayfinite.precision.formats import BF16, E4M3, E5M2, FP16, FP32, TF32, Format


@contextmanager
def autocast_region(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Enable autocast with this dtype; disable it for None."""
    enabled, before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    nested = torch.autocast_increment_nesting()
    torch.set_autocast_enabled(device, dtype is not None)
    if dtype is not None:
        torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, before)
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        del nested


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Formats of a linear layer's operands and results."""

    name: str
    operands: Format
    """Format of inputs and weights."""
    gradients: Format
    """Format of the incoming gradient."""
    scaling: str = ""
    """fp8 scaling: "tensorwise" or "rowwise". Empty for a plain cast."""
    results: Format = FP32
    """Format of outputs and outgoing gradients."""

    @property
    def fp8(self) -> bool:
        return bool(self.scaling)


RECIPES: dict[str, Recipe] = {
    each.name: each
    for each in (
        Recipe(name="fp32", operands=FP32, gradients=FP32),
        Recipe(name="tf32", operands=TF32, gradients=TF32),
        Recipe(name="bf16", operands=BF16, gradients=BF16, results=BF16),
        Recipe(name="fp16", operands=FP16, gradients=FP16, results=FP16),
        # Same as torchao's recipes: e5m2 gradients for tensorwise, e4m3 throughout for rowwise.
        Recipe(name="fp8", operands=E4M3, gradients=E5M2, scaling="tensorwise", results=BF16),
        Recipe(name="fp8-rowwise", operands=E4M3, gradients=E4M3, scaling="rowwise", results=BF16),
    )
}
"""Recipes by the name used in plans."""


@dataclass(frozen=True, slots=True)
class Amax:
    """Largest magnitudes of the whole tensors, when only some rows are sampled."""

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
        with _as_one_operator(x):
            rows = x.detach().reshape(-1, x.shape[-1])
            product = (
                _rounded_operand(rows, recipe, recipe.operands, -1, known)
                @ _rounded_operand(weight, recipe, recipe.operands, -1).t()
            )
            if bias is not None:
                product = product + bias.float()
            return recipe.results.rounded(product).reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        recipe, scale = ctx.recipe, ctx.scale
        seen, known = (None, None) if ctx.amax is None else (ctx.amax.input, ctx.amax.grad_output * scale)
        with _as_one_operator(x):
            grad = gradients[0].float().reshape(-1, weight.shape[0]) * scale
            rows = x.reshape(-1, x.shape[-1])
            if not recipe.fp8:
                grad = recipe.gradients.rounded(grad)
            forth, back = (_rounded_operand(grad, recipe, recipe.gradients, along, known) for along in (-1, 0))
            grad_input = forth @ _rounded_operand(weight, recipe, recipe.operands, 0)
            grad_weight = back.t() @ _rounded_operand(rows, recipe, recipe.operands, 0, seen)
            grad_input, grad_weight = (recipe.results.rounded(each) / scale for each in (grad_input, grad_weight))
            grad_bias = grad.sum(0) / scale if ctx.biased else None
            return grad_input.reshape(x.shape), grad_weight, grad_bias, None, None, None


@contextmanager
def _as_one_operator(x: Tensor) -> Iterator[None]:
    """Disable autocast and dispatch modes, so the computation counts as one operator.

    The operands are already rounded, so TF32 products leave them unchanged.
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
        scale: the loss scale applied to gradients while rounding, and removed afterwards.
        amax: of the whole input and gradient, if ``x`` is only a part.
    """
    compute: Any = _RoundedLinear.apply
    result: Tensor = compute(x.float(), weight.float(), bias, recipe, scale, amax)
    return result


def _rounded_operand(matrix: Tensor, recipe: Recipe, kind: Format, along: int, amax: float | None = None) -> Tensor:
    """Round a matrix for the product. ``along`` is the summed dimension, which shares a scale."""
    if not recipe.fp8:
        return kind.rounded(matrix)
    matrix = matrix.detach().float()
    if recipe.scaling == "rowwise":
        most = matrix.abs().amax(along, keepdim=True).clamp_min(1e-12)
        scale = torch.exp2(torch.floor(torch.log2(kind.largest / most)))  # powers of two, as in torchao
    else:
        most = matrix.abs().amax() if amax is None else torch.tensor(amax, device=matrix.device)
        scale = kind.largest / most.clamp_min(1e-12)
    # Unless the scale is a power of two, dividing adds bits again, far below the rounding error.
    return kind.rounded((matrix * scale).clamp(-kind.largest, kind.largest)) / scale


def lost_share(values: Tensor, kind: Format, scale: float = 1.0) -> float:
    """Share of nonzero values that the format flushes to 0."""
    values = values.detach().float()
    alive = values != 0
    count = int(alive.sum())
    if not count:
        return 0.0
    return float((alive & (values.abs() * scale <= kind.smallest_subnormal / 2)).sum()) / count


@contextmanager
def linears_as(modules: Mapping[nn.Linear, Recipe], *, half: torch.dtype | None) -> Iterator[None]:
    """Make these layers compute by their recipes within this context.

    Arguments:
        half: dtype of the neighbors; None for fp32.
    """

    def forward_of(module: nn.Linear, recipe: Recipe) -> Any:
        def forward(x: Tensor) -> Tensor:
            if half is not None:
                x = x.to(half)
            product = rounded_linear(x, module.weight, module.bias, recipe)
            return product if half is None or not recipe.fp8 else product.to(half)

        return forward

    with other_forwards({module: forward_of(module, recipe) for module, recipe in modules.items()}):
        yield
