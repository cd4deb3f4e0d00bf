"""Tensor parallelism (``--tensor-parallel``) with torch's DTensor styles."""

from collections.abc import Callable
from functools import partial
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

from stayfinite.recipes.running.sharding import Planned, planned_layers


def split(model: Any, mesh: DeviceMesh) -> None:
    """Keep only this rank's part of each planned layer, in place.

    All trained parameters become DTensors, including replicated ones: fused optimizers reject a mixture.

    Arguments:
        mesh: of the ranks that compute the layers together.
    """
    learns = {name: parameter.requires_grad for name, parameter in model.named_parameters(remove_duplicate=False)}
    tied = _tied(model)
    for planned in planned_layers(model, mesh.size()):
        for module, style in _styles(planned):
            # The weights are already loaded and equal on every rank.
            parallelize_module(module, mesh, style, src_data_rank=None)
    for module in model.modules():
        if any(each.requires_grad and not isinstance(each, DTensor) for each in module.parameters(recurse=False)):
            _Whole()._apply(module, mesh)
        if isinstance(heads := getattr(module, "n_heads", None), int):
            module.n_heads = heads // mesh.size()  # T5 sizes an empty position bias by it
    for first, *others in tied:
        for module, name in others:
            module.register_parameter(name, first[0].get_parameter(first[1]))
    for name, parameter in model.named_parameters(remove_duplicate=False):
        parameter.requires_grad_(learns[name])


def _styles(planned: Planned) -> list[tuple[nn.Module, ParallelStyle]]:
    """Modules and styles of a layer, or of its adapter."""
    layer: Any = planned.module
    if not hasattr(layer, "base_layer"):
        return [(layer, STYLES[planned.style]())]
    # Only one factor of an adapter has the split side; the other is replicated.
    factors = layer.lora_A if planned.style == "rowwise" else layer.lora_B
    return [(each, STYLES[planned.style]()) for each in (layer.base_layer, *factors.values())]


STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_gather_output": partial(ColwiseParallel, output_layouts=Replicate()),
    "embedding_rowwise": partial(RowwiseParallel, input_layouts=Replicate()),
    # A per-head norm: each rank sees its own heads, and gradients are summed. The split dimension does not matter
    # unless it is the normalized one.
    "replicated_with_grad_allreduce": partial(SequenceParallel, sequence_dim=1, use_local_output=True),
}
"""torch's styles by their names in transformers."""


class _Whole(ParallelStyle):
    """A layer computed whole on every rank from the same input."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        # The annotation omits that its return value replaces the input.
        spread: Any = _spread_input
        return distribute_module(module, device_mesh, None, spread, _local_output)


def _spread_input(_: nn.Module, inputs: tuple[Tensor, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
    return (DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False), *inputs[1:])


def _local_output(_: nn.Module, output: Any, __: DeviceMesh) -> Any:
    return output.to_local()


def _tied(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """Shared parameters, by their places."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            places.setdefault(id(parameter), []).append((module, name))
    return [found for found in places.values() if len(found) > 1]
