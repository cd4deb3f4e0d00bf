"""A model of whose layers each rank computes a part (``--tensor-parallel``), by torch's own DTensor styles."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from stayfinite.recipes.running.tensor_plans import Planned, planned_layers


def split(model: Any, mesh: DeviceMesh) -> None:
    """Leave this rank with its part of each planned layer, in place.

    Everything that is trained becomes a DTensor, also what stays whole on each rank: an optimizer's fused kernels take
    no mixture.

    Arguments:
        mesh: of the ranks that compute the layers together.
    """
    learns = {name: parameter.requires_grad for name, parameter in model.named_parameters(remove_duplicate=False)}
    tied = _tied(model)
    for planned in planned_layers(model, mesh.size()):
        for module, style in _styles(planned):
            # The weights are here already, and the same on every rank.
            parallelize_module(module, mesh, style, src_data_rank=None)
    for module in model.modules():
        if any(each.requires_grad and not isinstance(each, DTensor) for each in module.parameters(recurse=False)):
            _Whole()._apply(module, mesh)
        if isinstance(heads := getattr(module, "n_heads", None), int):
            module.n_heads = heads // mesh.size()  # T5 makes an empty position bias of so many
    for first, *others in tied:
        for module, name in others:
            module.register_parameter(name, first[0].get_parameter(first[1]))
    for name, parameter in model.named_parameters(remove_duplicate=False):
        parameter.requires_grad_(learns[name])


def _styles(planned: Planned) -> list[tuple[nn.Module, ParallelStyle]]:
    """What is done with a layer, or with the layers of its adapter."""
    layer: Any = planned.module
    if not hasattr(layer, "base_layer"):
        return [(layer, _style(planned.style))]
    # Of the two factors of an adapter one has the side that is in parts; the other is whole on every rank.
    factors = layer.lora_A if planned.style == "rowwise" else layer.lora_B
    return [(each, _style(planned.style)) for each in (layer.base_layer, *factors.values())]


def _style(name: str) -> ParallelStyle:
    """torch's style for one of transformers' names."""
    if name == "colwise":
        return ColwiseParallel()
    if name == "rowwise":
        return RowwiseParallel()
    if name == "colwise_gather_output":
        return ColwiseParallel(output_layouts=Replicate())
    if name == "embedding_rowwise":
        return RowwiseParallel(input_layouts=Replicate())
    # A norm of each head: a rank sees its own heads, and the gradients of all are added up. Which dimension is said to
    # be in parts makes no difference, as long as it is not the one that is normalised.
    return SequenceParallel(sequence_dim=1, use_local_output=True)


class _Whole(ParallelStyle):
    """A layer that every rank computes as a whole, from the same input."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        # Its annotation leaves out that it takes what this returns for the input.
        spread: Any = _spread_input
        return distribute_module(module, device_mesh, None, spread, _local_output)


def _spread_input(_: nn.Module, inputs: tuple[Tensor, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
    return (DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False), *inputs[1:])


def _local_output(_: nn.Module, output: Any, __: DeviceMesh) -> Any:
    return output.to_local()


def _tied(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """Parameters that several layers share, by where they are."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            places.setdefault(id(parameter), []).append((module, name))
    return [found for found in places.values() if len(found) > 1]
