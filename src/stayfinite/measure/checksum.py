"""The bits of a tensor as one number, so that two computations can be compared without keeping either."""

from __future__ import annotations

import torch
from torch import Tensor

WIDE = 8
"""Bytes that are added at a time: torch adds 64-bit integers at the speed of memory, and narrower ones far slower."""

NARROW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def checksum(tensor: Tensor) -> Tensor:
    """The sum of a tensor's bits, taken as 64-bit integers; int64, shape [], on its device.

    One flipped bit always changes it. Tensors with the same numbers in the same order have the same sum, wherever they
    lie in memory.
    """
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        # In the order in which they are stored: putting them in order would add them up.
        return checksum(tensor._values()) + checksum(tensor._indices())
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.contiguous().reshape(-1)
    size = flat.element_size()
    if flat.storage_offset() * size % WIDE:
        flat = flat.clone()
    whole = flat.numel() // (WIDE // size) * (WIDE // size)
    total = flat[:whole].view(torch.int64).sum()
    return total + flat[whole:].view(NARROW[size]).sum(dtype=torch.int64) if whole < flat.numel() else total
