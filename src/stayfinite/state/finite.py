"""Whether a state is free of poison: NaN or infinity where numbers are computed with."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def is_finite(tensor: Tensor) -> bool:
    """Whether every element of a tensor on the host is a finite number; integers always are."""
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.element_size() > 1:
        # One fast pass: the sum of finite numbers is finite unless it overflows, which the exact test then settles.
        total = tensor.sum(dtype=tensor.dtype if tensor.element_size() > 2 else torch.float32)
        if math.isfinite(total.item()):
            return True
    return bool(torch.isfinite(tensor.to(torch.float32) if tensor.element_size() == 1 else tensor).all())


def finite_flag(tensors: Iterable[Tensor]) -> list[Tensor]:
    """For each device, a flag on it that tells whether all its tensors are finite. Waits for nothing."""
    places: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel() and tensor.is_floating_point():
            wide = tensor if tensor.element_size() > 1 else tensor.float()
            places.setdefault((wide.device, wide.dtype), []).append(wide)
    # The largest absolute value carries a NaN along and cannot overflow, as a sum of squares can.
    return [torch.stack(torch._foreach_norm(group, math.inf)).isfinite().all() for group in places.values()]
