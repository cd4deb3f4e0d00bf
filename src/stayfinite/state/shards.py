"""A tensor that is spread over ranks (a DTensor, as FSDP2 makes them): this rank's part of it, and where that lies."""

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
    """Where a rank's part lies in the whole tensor."""

    whole: tuple[int, ...]
    """The shape of the whole tensor."""

    offset: tuple[int, ...]
    """The part's first element in it."""

    owner: bool
    """Whether this rank writes the part; of ranks that hold the same part, one does."""


def is_spread(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether the tensor is a DTensor. Does not import what a training on one device never needs."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Tensor) -> Tensor:
    """This rank's part, which shares memory with the tensor; of an ordinary tensor, the tensor itself."""
    if not is_spread(tensor):
        return tensor.detach()
    with torch.no_grad():
        return tensor.to_local().detach()


def full_value(tensor: Tensor) -> Tensor:
    """The numbers of a whole tensor, detached; of one whose parts or summands lie on several ranks, a collective."""
    if not is_spread(tensor):
        return tensor.detach()
    with torch.no_grad():
        whole: Tensor = tensor.full_tensor()
        return whole


def shard_of(tensor: Tensor) -> Shard | None:
    """Where this rank's part lies; None for an ordinary tensor."""
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
    """A DTensor of which ``part`` is this rank's, laid out as ``model`` is."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part, model.device_mesh, model.placements, run_check=False, shape=model.shape, stride=model.stride()
    )
