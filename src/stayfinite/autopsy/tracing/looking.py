"""Inspect tensors: quickly for each, closely if something is wrong."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.tracing.events import Health, TensorLook

VIEWS = frozenset({
    "view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "alias",
    "detach", "split", "split_with_sizes", "unbind", "as_strided", "diagonal", "unfold", "chunk", "reshape",
    "_reshape_alias", "lift_fresh", "view_as_real", "view_as_complex", "movedim", "narrow",
})  # fmt: skip

PLAIN = (Tensor, nn.Parameter)
"""The most common tensor types, for a fast check."""


@dataclass(slots=True, frozen=True)
class Kind:
    """An operator of torch or of another package."""

    name: str
    """`aten.mm`."""
    overload: str
    """`Tensor_Scalar`."""
    is_view: bool
    """Whether it computes nothing."""
    writes: bool
    """Whether it modifies an argument."""


def kind_of(func: Any) -> Kind:
    """Facts about an operator."""
    bare = func._schema.name.removeprefix("aten::") if func.namespace == "aten" else func._schema.name
    return Kind(
        name=f"aten.{bare}" if func.namespace == "aten" else bare.replace("::", "."),
        overload=func._overloadname,
        is_view=bare in VIEWS,
        writes=bool(func._schema.is_mutable),
    )


def sort_out(items: Iterable[Any], tensors: list[Tensor], numbers: list[float]) -> None:
    """Collect tensors and numbers among an operator's arguments, including nested lists."""
    for item in items:
        kind = type(item)
        if kind in PLAIN:
            tensors.append(item)
        elif item is None:
            continue
        elif isinstance(item, int | float):
            numbers.append(float(item))
        elif kind is list or kind is tuple or isinstance(item, list | tuple):
            sort_out(item, tensors, numbers)
        elif isinstance(item, Tensor):
            tensors.append(item)


def storage_of(tensor: Tensor) -> int:
    """Start address of the storage, shared by all tensors in it."""
    try:
        start = tensor.data_ptr()
        if start:
            return start - int(tensor.storage_offset()) * tensor.element_size()
        return int(tensor.untyped_storage()._cdata)  # no memory; accessing the storage object is slow
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a single storage
        return id(tensor)


def is_part(tensor: Tensor) -> bool:
    """Whether a tensor covers only a part of its storage."""
    try:
        return tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return False


NAMES = {kind: str(kind).removeprefix("torch.") for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
"""Names of dtypes: `float16`."""


FIRST = 8
"""Indices of bad values to record."""
MOST_ROWS = 4096


def surely_finite(tensor: Tensor) -> bool:
    """Fast check: a finite sum proves that all numbers are finite. False proves nothing."""
    try:
        return cmath.isfinite(tensor.sum().item())
    except RuntimeError:  # there is no sum of 8-bit floats
        return False


def health_now(tensor: Tensor) -> Health:
    """Health of a tensor; syncs."""
    flat = tensor.detach()
    return Health.FINITE if surely_finite(flat) else worst_in(flat)


def worst_in(tensor: Tensor) -> Health:
    """Health of a tensor that is probably not finite."""
    flat = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    least, largest = torch.aminmax(flat.float() if flat.element_size() == 1 else flat)
    return _health_of(least.item(), largest.item())


def finite_together(tensors: list[Tensor]) -> list[bool]:
    """Whether each tensor is finite, with a few kernels for all of them and one sync."""
    found = [False] * len(tensors)
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for at, tensor in enumerate(tensors):
        if tensor.is_floating_point() and tensor.element_size() > 1:
            groups.setdefault((tensor.device, tensor.dtype), []).append(at)
    with torch.no_grad():
        for members in groups.values():
            norms = torch.stack(torch._foreach_norm([tensors[at] for at in members], math.inf))
            for at, finite in zip(members, norms.isfinite().tolist(), strict=True):
                found[at] = finite
    return found


def _health_of(least: float, largest: float) -> Health:
    """Health from two extremes."""
    if math.isnan(least) or math.isnan(largest):
        return Health.NAN
    return Health.INFINITE if math.isinf(least) or math.isinf(largest) else Health.FINITE


def dense(tensor: Tensor) -> Tensor:
    """Values of a tensor; for a sparse one, the stored values."""
    return tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor


def can_be_bad(tensor: Tensor) -> bool:
    """Whether it contains numbers that may be non-finite."""
    numbers = tensor.is_floating_point() or tensor.is_complex()
    return numbers and tensor.numel() > 0 and tensor.layout is torch.strided and unwrapped(tensor) is tensor


def unwrapped(tensor: Tensor) -> Tensor:
    """The 8-bit data that torchao wraps with a scale; any other tensor unchanged.

    The wrapper supports matrix products and little else, so its values must not be read.
    """
    if type(tensor) in (Tensor, torch.nn.Parameter):
        return tensor
    inner = getattr(tensor, "_data", None)
    return inner if isinstance(inner, Tensor) and inner.is_floating_point() and inner.element_size() == 1 else tensor


def values_at(tensor: Tensor, shape: tuple[int, ...], indices: list[list[int]]) -> list[float]:
    """Values at indices of a shape that the tensor broadcasts to; empty if it does not."""
    try:
        spread = unwrapped(tensor).detach().expand(shape)
    except RuntimeError:
        return []
    return [float(spread[tuple(index)]) for index in indices] if not spread.is_complex() else []


def look_closely(tensor: Tensor, name: str = "") -> TensorLook:
    """Count and locate non-finite values."""
    tensor = unwrapped(tensor)  # as stored, before dividing by the scale
    values = dense(tensor.detach())
    dtype = str(values.dtype).removeprefix("torch.")
    if values.is_complex():
        values, dtype = torch.view_as_real(values), str(torch.view_as_real(values).dtype).removeprefix("torch.")
    if values.is_floating_point() and values.element_size() == 1:
        values = values.float()  # there is no maximum of 8-bit floats
    look = TensorLook(tuple(values.shape), dtype, zeros=int((values == 0).sum()), name=name)
    if not can_be_bad(tensor):
        if values.numel() and not values.is_floating_point():
            look.least, look.largest = float(values.amin()), float(values.amax())
        return look
    finite = values.isfinite()
    look.nans, look.infinities = int(values.isnan().sum()), int(values.isinf().sum())
    if bool(finite.any()):
        kept = values.masked_select(finite)
        least, largest = torch.aminmax(kept)
        look.least, look.largest = float(least), float(largest)
    if look.nans or look.infinities:
        bad = (~finite).nonzero()
        look.first_bad = bad[:FIRST].tolist()
        if values.dim():
            look.bad_rows = bad[:, 0].unique()[:MOST_ROWS].tolist()
    return look
