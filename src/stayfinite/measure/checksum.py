"""Checksum of a tensor's bits, to compare two computations without keeping either."""

from __future__ import annotations

import torch
from torch import Tensor

WIDE = 8
"""Bytes summed at a time: torch sums 64-bit integers at memory speed, narrower ones far slower."""

NARROW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def checksum(tensor: Tensor) -> Tensor:
    """Sum of a tensor's bits as 64-bit integers; int64, shape [], on its device.

    One flipped bit always changes it. Tensors with the same values in the same order have the same sum, at any address.
    """
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        # In storage order: coalescing would sum the values.
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
