"""DTensors on a mesh: how many ranks hold the same shard, and which ranks to compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from stayfinite.state.shards import is_spread

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def holders_of(parameter: Tensor, holding: int) -> int:
    """Number of ranks that hold the same shard as this one.

    A plain tensor is complete on every rank that holds it. A DTensor is the same along each replicated mesh dimension;
    ranks outside the mesh have a mesh of their own with replicas.

    Arguments:
        holding: number of ranks that hold the tensor or a shard of it.
    """
    if not is_spread(parameter):
        return holding
    mesh = parameter.device_mesh
    holders = max(1, holding // mesh.size())
    for dimension in _replicated(parameter):
        holders *= mesh.size(dimension)
    return holders


def replicas_of(parameters: Sequence[Tensor]) -> Iterator[tuple[Any, list[int]]]:
    """Groups of ranks with the same shards, each with the positions of the shared tensors."""
    by_group: dict[int, tuple[Any, list[int]]] = {}
    for place, parameter in enumerate(parameters):
        if is_spread(parameter):
            for dimension in _replicated(parameter):
                group = parameter.device_mesh.get_group(dimension)
                by_group.setdefault(id(group), (group, []))[1].append(place)
    yield from by_group.values()


def settle_placement(parameter: Tensor) -> None:
    """Redistribute a gradient like its parameter, as the optimizer would before using it.

    Autograd may leave a partial sum on each rank, or the full gradient of a sharded parameter.
    """
    grad = parameter.grad
    if grad is None or not is_spread(grad) or not is_spread(parameter) or grad.placements == parameter.placements:
        return
    parameter.grad = grad.redistribute(placements=parameter.placements)


def _replicated(tensor: DTensor) -> Iterator[int]:
    """Mesh dimensions along which a tensor is replicated."""
    return (dimension for dimension, placement in enumerate(tensor.placements) if placement.is_replicate())
