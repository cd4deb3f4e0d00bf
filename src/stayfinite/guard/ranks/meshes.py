"""Tensors that are spread over a mesh of ranks: how many ranks hold the same part, and which of them to compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from stayfinite.state.shards import is_spread

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def holders_of(parameter: Tensor, holding: int) -> int:
    """How many ranks hold the very part of the tensor that this one does.

    An ordinary tensor is whole on every rank that holds it. A DTensor is the same along each dimension of its mesh in
    which it is replicated; ranks outside of the mesh have one of their own, with replicas of it.

    Arguments:
        holding: how many ranks hold the tensor, or a part of it.
    """
    if not is_spread(parameter):
        return holding
    mesh = parameter.device_mesh
    holders = max(1, holding // mesh.size())
    for dimension in _replicated(parameter):
        holders *= mesh.size(dimension)
    return holders


def replicas_of(parameters: Sequence[Tensor]) -> Iterator[tuple[Any, list[int]]]:
    """Groups of ranks that hold the same parts of spread tensors, each with the places of the tensors they share."""
    by_group: dict[int, tuple[Any, list[int]]] = {}
    for place, parameter in enumerate(parameters):
        if is_spread(parameter):
            for dimension in _replicated(parameter):
                group = parameter.device_mesh.get_group(dimension)
                by_group.setdefault(id(group), (group, []))[1].append(place)
    yield from by_group.values()


def settle_placement(parameter: Tensor) -> None:
    """Lay a gradient out as its parameter is, as the optimizer would before it uses it.

    Autograd may leave a summand on each rank, or the whole gradient of a parameter that is sharded.
    """
    grad = parameter.grad
    if grad is None or not is_spread(grad) or not is_spread(parameter) or grad.placements == parameter.placements:
        return
    parameter.grad = grad.redistribute(placements=parameter.placements)


def _replicated(tensor: DTensor) -> Iterator[int]:
    """The dimensions of its mesh along which a tensor is the same."""
    return (dimension for dimension, placement in enumerate(tensor.placements) if placement.is_replicate())
