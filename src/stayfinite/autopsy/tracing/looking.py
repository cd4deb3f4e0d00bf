"""Inspect tensors: quickly for each, closely if something is wrong."""

from __future__ import annotations

import cmath
import math

import torch
from torch import Tensor

from stayfinite.autopsy.tracing.events import Health, TensorLook

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
    look = TensorLook(
        shape=tuple(values.shape),
        dtype=dtype,
        least=None,
        largest=None,
        nans=0,
        infinities=0,
        zeros=int((values == 0).sum()),
        name=name,
    )
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
