"""Looking at tensors: quickly for each, closely where something is wrong."""

from __future__ import annotations

import cmath
import math

import torch
from torch import Tensor

from stayfinite.autopsy.tracing.events import Health, TensorLook

FIRST = 8
"""Indices of bad values that are written down."""
MOST_ROWS = 4096


def surely_finite(tensor: Tensor) -> bool:
    """The quickest look: where the sum is finite, so is every number. Where it is not, that says nothing."""
    try:
        return cmath.isfinite(tensor.sum().item())
    except RuntimeError:  # of numbers of eight bits there is no sum
        return False


def health_now(tensor: Tensor) -> Health:
    """What is in a tensor, read at once."""
    flat = tensor.detach()
    return Health.FINITE if surely_finite(flat) else worst_in(flat)


def worst_in(tensor: Tensor) -> Health:
    """What is in a tensor that may well not be finite."""
    flat = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    least, largest = torch.aminmax(flat.float() if flat.element_size() == 1 else flat)
    return _health_of(least.item(), largest.item())


def finite_together(tensors: list[Tensor]) -> list[bool]:
    """Whether each tensor is all finite, found out by a few kernels for all of them and read back at once."""
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
    """What two extremes say."""
    if math.isnan(least) or math.isnan(largest):
        return Health.NAN
    return Health.INFINITE if math.isinf(least) or math.isinf(largest) else Health.FINITE


def dense(tensor: Tensor) -> Tensor:
    """The values of a tensor, of a sparse one those that it has."""
    return tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor


def can_be_bad(tensor: Tensor) -> bool:
    """Whether it holds numbers that can be other than finite, and any at all."""
    numbers = tensor.is_floating_point() or tensor.is_complex()
    return numbers and tensor.numel() > 0 and tensor.layout is torch.strided and unwrapped(tensor) is tensor


def unwrapped(tensor: Tensor) -> Tensor:
    """The numbers of eight bits that torchao wraps with their scale; any other tensor as it is.

    The wrapper knows matrix products and little else: it must not be asked for its values.
    """
    if type(tensor) in (Tensor, torch.nn.Parameter):
        return tensor
    inner = getattr(tensor, "_data", None)
    return inner if isinstance(inner, Tensor) and inner.is_floating_point() and inner.element_size() == 1 else tensor


def values_at(tensor: Tensor, shape: tuple[int, ...], indices: list[list[int]]) -> list[float]:
    """A tensor's values at indices of another shape that it broadcasts to; empty when it does not."""
    try:
        spread = unwrapped(tensor).detach().expand(shape)
    except RuntimeError:
        return []
    return [float(spread[tuple(index)]) for index in indices] if not spread.is_complex() else []


def look_closely(tensor: Tensor, name: str = "") -> TensorLook:
    """Count and place what is not finite."""
    tensor = unwrapped(tensor)  # as they lie there, before they are divided by their scale
    values = dense(tensor.detach())
    dtype = str(values.dtype).removeprefix("torch.")
    if values.is_complex():
        values, dtype = torch.view_as_real(values), str(torch.view_as_real(values).dtype).removeprefix("torch.")
    if values.is_floating_point() and values.element_size() == 1:
        values = values.float()  # of numbers of eight bits there is no largest
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
