"""Check a state for NaN and infinity."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def is_finite(tensor: Tensor) -> bool:
    """Whether every element of a host tensor is finite; integers always are."""
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.element_size() > 1:
        # Fast path: a finite sum proves it; if the sum overflows, the exact test decides.
        total = tensor.sum(dtype=tensor.dtype if tensor.element_size() > 2 else torch.float32)
        if math.isfinite(total.item()):
            return True
    return bool(torch.isfinite(tensor.to(torch.float32) if tensor.element_size() == 1 else tensor).all())


def finite_flag(tensors: Iterable[Tensor]) -> list[Tensor]:
    """For each device and dtype, a device flag whether all its tensors are finite. No sync."""
    places: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel() and tensor.is_floating_point():
            wide = tensor if tensor.element_size() > 1 else tensor.float()
            places.setdefault((wide.device, wide.dtype), []).append(wide)
    # Unlike a sum of squares, the largest absolute value propagates NaN and cannot overflow.
    return [torch.stack(torch._foreach_norm(group, math.inf)).isfinite().all() for group in places.values()]
