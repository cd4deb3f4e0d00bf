"""Tensors that are spread over a mesh of ranks: how many ranks hold the same part, and which of them to compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from stayfinite.state.shards import is_spread

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def holders_of(parameter: Tensor, world: int) -> int:
    """How many of all ranks hold the very part of the tensor that this one does.

    An ordinary tensor is whole on every rank. A DTensor is the same along each dimension of its mesh in which it is
    replicated; ranks outside of the mesh have one of their own, with replicas of it.
    """
    if not is_spread(parameter):
        return world
    mesh = parameter.device_mesh
    holders = max(1, world // mesh.size())
    for dimension in _replicated(parameter):
        holders *= mesh.size(dimension)
    return holders


def replicas_of(parameters: Sequence[Tensor]) -> Iterator[tuple[Any, list[int]]]:
    """Groups of ranks that hold the same parts, each with the places of the tensors that they share.

    A group of None is all ranks: the place of ordinary tensors.
    """
    whole = [place for place, parameter in enumerate(parameters) if not is_spread(parameter)]
    if whole:
        yield None, whole
    by_group: dict[int, tuple[Any, list[int]]] = {}
    for place, parameter in enumerate(parameters):
        if is_spread(parameter):
            for dimension in _replicated(parameter):
                group = parameter.device_mesh.get_group(dimension)
                by_group.setdefault(id(group), (group, []))[1].append(place)
    yield from by_group.values()


def settle_partial(parameter: Tensor) -> None:
    """Add up a gradient of which each rank holds a summand, as the optimizer would before it uses it."""
    grad = parameter.grad
    if grad is None or not is_spread(grad) or not any(placement.is_partial() for placement in grad.placements):
        return
    assert is_spread(parameter)
    parameter.grad = grad.redistribute(placements=parameter.placements)


def _replicated(tensor: DTensor) -> Iterator[int]:
    """The dimensions of its mesh along which a tensor is the same."""
    return (dimension for dimension, placement in enumerate(tensor.placements) if placement.is_replicate())
