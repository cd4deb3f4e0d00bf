"""Guard one operator on one source line against its singularity: the fix a person would make, tried.

Works above autograd, so the derivative is that of the guarded formula: `sqrt(x)` becomes `sqrt(x + eps)`, `a / b` gets
a nonzero denominator, a softmax over a fully masked row gets an open one, an empty mean is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stayfinite.autopsy.steps.changes import FunctionChange
from stayfinite.autopsy.tracing.events import Place
from stayfinite.autopsy.tracing.frames import places

Guarded = Callable[..., Any]


def can_be_guarded(operator: str) -> bool:
    """Whether an operator (without namespace) has a guarded form."""
    return any(operator.strip("_").startswith(stem) for stem in _STEMS)


class _OnOneLine(FunctionChange):
    def __init__(self, place: Place) -> None:
        super().__init__()
        self._line = place.file, place.line

    def _called_here(self) -> bool:
        near, _ = places()
        return near is not None and (near.file, near.line) == self._line


class GuardedLine(_OnOneLine):
    """Context in which the operators called from a line are guarded."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the guarded form if line and operator match."""
        form = _FORMS.get(getattr(func, "__name__", "").strip("_"))
        if form is None or not self._called_here():
            return func(*args, **kwargs)
        return form(func, *args, **kwargs)


class FiniteConstants(_OnOneLine):
    """Context in which infinities written by a line become large finite numbers."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function with finite numbers instead of infinite ones."""
        infinite = any(isinstance(value, float) and math.isinf(value) for value in (*args, *kwargs.values()))
        if infinite and self._called_here():
            args = tuple(_large(value) for value in args)
            kwargs = {name: _large(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _large(value: Any) -> Any:
    # 1e4 is in range for every format, and exp(-1e4) is 0 in all of them.
    return math.copysign(1e4, value) if isinstance(value, float) and math.isinf(value) else value


def _eps(tensor: Tensor) -> float:
    return 1e-3 if tensor.dtype in (torch.float16, torch.bfloat16) else 1e-6


def _with_first(change: Callable[[Any], Any]) -> Guarded:
    """The form that changes its first argument."""
    return lambda func, x, *args, **kwargs: func(change(x), *args, **kwargs)


def _above_zero(x: Any) -> Any:
    return x.clamp_min(0.0) + _eps(x) if isinstance(x, Tensor) else x


def _within_one(x: Tensor) -> Tensor:
    return x.clamp(-1.0 + _eps(x), 1.0 - _eps(x))


def _shifted(x: Tensor) -> Tensor:
    return x + _eps(x)


def _small_exponent(x: Tensor, in_half: float = 4.0) -> Tensor:
    return x.clamp_max(in_half if x.dtype is torch.float16 else 30.0)


def _power(func: Guarded, x: Any, *args: Any, **kwargs: Any) -> Any:
    exponent = args[0] if args else kwargs.get("exponent")
    if isinstance(x, Tensor) and x.is_floating_point():
        whole = isinstance(exponent, int | float) and float(exponent).is_integer()
        # A negative base has no fractional power.
        x = torch.where(x.abs() < _eps(x), torch.full_like(x, _eps(x)), x) if whole else x.clamp_min(_eps(x))
    if isinstance(exponent, Tensor) and not isinstance(x, Tensor):
        args = (_small_exponent(exponent), *args[1:])
    return func(x, *args, **kwargs)


def _product(func: Guarded, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
    """0 times infinity is 0."""
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return func(
            torch.where((y == 0) & x.isinf(), 0.0, x), torch.where((x == 0) & y.isinf(), 0.0, y), *args, **kwargs
        )
    if isinstance(x, Tensor) and isinstance(y, float):
        return torch.where(x == 0, 0.0, func(torch.where(x == 0, 1.0, x), y, *args, **kwargs))
    return func(x, y, *args, **kwargs)


def _spread(func: Guarded, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Avoid a std of 0; the std of a single value is 0."""
    found = func(x + _eps(x), *args, **kwargs)
    single = isinstance(found, Tensor) and bool(found.isnan().all()) and bool(x.isfinite().all())
    return torch.zeros_like(found) if single else found


def _denominator(func: Guarded, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
    return func(x, _not_zero(y), *args, **kwargs)


def _not_zero(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return 1 if isinstance(value, int | float) and value == 0 else value
    if not value.is_floating_point():
        return torch.where(value == 0, torch.ones_like(value), value)
    eps = _eps(value)
    away = torch.where(value < 0, torch.full_like(value, -eps), torch.full_like(value, eps))
    return torch.where(value.abs() < eps, away, value)


def _open_rows(func: Guarded, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    dim = kwargs.get("dim", args[0] if args and isinstance(args[0], int) else -1)
    closed = (x == float("-inf")).all(dim, keepdim=True)
    return func(x.masked_fill(closed, 0.0), *args, **kwargs)


def _open_mask(
    func: Guarded, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *args: Any, **kwargs: Any
) -> Any:
    if attn_mask is not None:
        shut = ~attn_mask if attn_mask.dtype is torch.bool else attn_mask == float("-inf")
        closed = shut.all(-1, keepdim=True)
        attn_mask = attn_mask.masked_fill(closed, True if attn_mask.dtype is torch.bool else 0.0)
    return func(query, key, value, attn_mask, *args, **kwargs)


def _some_label(func: Guarded, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
    ignored = kwargs.get("ignore_index", -100)
    if not target.is_floating_point() and not bool((target != ignored).any()):
        return (input * 0.0).sum()
    return func(input, target, *args, **kwargs)


def _some_element(func: Guarded, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    return x.sum() if isinstance(x, Tensor) and x.numel() == 0 else func(x, *args, **kwargs)


def _with_eps(func: Guarded, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    place = {"layer_norm": 3, "rms_norm": 2, "group_norm": 3, "batch_norm": 6, "instance_norm": 6}[func.__name__]
    if len(args) > place:
        args = (*args[:place], 1e-3, *args[place + 1 :])
    else:
        kwargs["eps"] = 1e-3
    return func(x, *args, **kwargs)


def _normalised(func: Guarded, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    place = {"normalize": 2, "cosine_similarity": 2}[func.__name__]
    args = args[:place]
    return func(x, *args, **kwargs | {"eps": _eps(x)})


def _open_padding(func: Guarded, *args: Any, **kwargs: Any) -> Any:
    padding = kwargs.get("key_padding_mask")
    if isinstance(padding, Tensor):
        closed = (padding if padding.dtype is torch.bool else padding == float("-inf")).all(-1, keepdim=True)
        kwargs["key_padding_mask"] = padding.masked_fill(closed, False if padding.dtype is torch.bool else 0.0)
    return func(*args, **kwargs)


def _long_enough(func: Guarded, *args: Any, **kwargs: Any) -> Any:
    kwargs["zero_infinity"] = True
    return func(*args[:6], **kwargs)


_FORMS: dict[str, Guarded] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "digamma", "lgamma", "logit"), _with_first(_above_zero)),
    **dict.fromkeys(("acos", "asin", "arccos", "arcsin", "atanh", "arctanh", "erfinv"), _with_first(_within_one)),
    **dict.fromkeys(("pow", "float_power", "ipow"), _power),
    **dict.fromkeys(("norm", "linalg_norm", "linalg_vector_norm", "cdist", "dist"), _with_first(_shifted)),
    **dict.fromkeys(("std", "var"), _spread),
    "pairwise_distance": _with_first(_shifted),
    **dict.fromkeys(("div", "divide", "true_divide", "truediv", "itruediv", "atan2"), _denominator),
    **dict.fromkeys(("floor_divide", "fmod", "remainder"), _denominator),
    "rpow": _with_first(_small_exponent), "hypot": _with_first(_shifted),
    "log1p": _with_first(lambda x: x.clamp_min(-1.0 + _eps(x))),
    **dict.fromkeys(("mul", "multiply", "imul", "rmul"), _product),
    **dict.fromkeys(("rtruediv", "rdiv", "reciprocal"), _with_first(_not_zero)),
    **dict.fromkeys(("exp", "expm1", "exp2", "sinh", "cosh"), _with_first(lambda x: _small_exponent(x, 5.0))),
    **dict.fromkeys(("softmax", "log_softmax", "logsumexp"), _open_rows),
    "scaled_dot_product_attention": _open_mask,
    **dict.fromkeys(("cross_entropy", "nll_loss"), _some_label),
    **dict.fromkeys(("mean", "nanmean"), _some_element),
    "binary_cross_entropy": _with_first(lambda x: x.clamp(_eps(x), 1.0 - _eps(x))),
    "normalize": _normalised, "cosine_similarity": _normalised,
    "multi_head_attention_forward": _open_padding,
    **dict.fromkeys(("layer_norm", "group_norm", "rms_norm", "batch_norm", "instance_norm"), _with_eps),
    "ctc_loss": _long_enough,
}  # fmt: skip

_STEMS = (
    "log", "sqrt", "rsqrt", "acos", "asin", "atanh", "erfinv", "pow", "norm", "linalg_", "cdist", "std", "var",
    "div", "reciprocal", "exp", "softmax", "scaled_dot_product", "nll_loss", "mean", "binary_cross_entropy",
    "ctc_loss", "true_divide", "xlogy", "digamma", "mul", "hypot", "native_", "rms_norm", "fused_rms_norm",
    "lgamma", "sinh", "cosh", "atan2", "euclidean_dist",
)  # fmt: skip
