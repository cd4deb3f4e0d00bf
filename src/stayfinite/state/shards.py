"""DTensors (from FSDP2): this rank's shard and its position."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """Position of a rank's shard in the full tensor."""

    whole: tuple[int, ...]
    """Shape of the full tensor."""

    offset: tuple[int, ...]
    """Offset of the shard's first element."""

    owner: bool
    """Whether this rank writes the shard; one of the ranks that hold it does."""


def is_spread(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether the tensor is a DTensor. Avoids the import on a single device."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Tensor) -> Tensor:
    """This rank's shard, sharing memory; a plain tensor unchanged."""
    if not is_spread(tensor):
        return tensor.detach()
    with torch.no_grad():
        return tensor.to_local().detach()


def full_value(tensor: Tensor) -> Tensor:
    """The full tensor, detached; a collective for a DTensor."""
    if not is_spread(tensor):
        return tensor.detach()
    with torch.no_grad():
        whole: Tensor = tensor.full_tensor()
        return whole


def shard_of(tensor: Tensor) -> Shard | None:
    """Position of this rank's shard; None for a plain tensor."""
    if not is_spread(tensor):
        return None
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = tensor.device_mesh, tensor.placements
    _, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    place = mesh.get_coordinate()
    owner = place is not None and all(
        at == 0 for at, placement in zip(place, placements, strict=True) if isinstance(placement, Replicate)
    )
    return Shard(whole=tuple(tensor.shape), offset=tuple(offset), owner=owner)


def spread_like(part: Tensor, model: DTensor) -> Any:
    """A DTensor with ``part`` as this rank's shard, with the layout of ``model``."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part, model.device_mesh, model.placements, run_check=False, shape=model.shape, stride=model.stride()
    )
