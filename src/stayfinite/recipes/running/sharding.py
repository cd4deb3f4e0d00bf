"""Train a model on all ranks: replicated (DDP) or in parts (``--shard``, ``--tensor-parallel``)."""

import copy
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from stayfinite.errors import UsageError
from stayfinite.recipes.running.processes import Place


class Team:
    """The model in training. The given model stays whole, for evaluation and saving.

    Without parts, both share their weights. With parts, a sharded copy is trained, and the whole model holds only
    weights, a quarter of the memory of training in one process.

    Arguments:
        model: on its device.
        optimizer: of its parameters, before its first step; switched to the trained parts.
        place: with tensor parallelism, each rank of a group holds part of the layers, and groups share the weights.
        shard: whether each rank holds a part.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, place: Place, *, shard: bool = False) -> None:
        self._in_parts = place.count > 1 and (shard or place.tensor > 1)
        self._whole = model
        self.trained: Any = _in_parts(model, optimizer, place) if self._in_parts else _replicated(model, place)
        """The module to call in training."""

    @torch.no_grad()
    def gather(self) -> None:
        """Update the whole model. Call on every rank."""
        if not self._in_parts:
            return
        whole = self._whole.state_dict(keep_vars=True)
        for name, value in self.trained.state_dict().items():
            whole[name].copy_(value.full_tensor() if hasattr(value, "full_tensor") else value)


def _replicated(model: nn.Module, place: Place) -> nn.Module:
    """The model under DDP if there are several ranks."""
    if place.count == 1:
        return model
    return DistributedDataParallel(model, device_ids=[place.device.index] if place.device.type == "cuda" else None)


def _in_parts(model: nn.Module, optimizer: Optimizer, place: Place) -> nn.Module:
    """A sharded copy of the model, handed to the optimizer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # Warns about blocks whose output is modified in place; the recipes have none.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    sizes = {name: size for name, size in (("rows", place.row_ranks), ("tensor", place.tensor)) if size > 1}
    mesh = init_device_mesh(place.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    trained = copy.deepcopy(model)
    if "tensor" in sizes:
        from stayfinite.recipes.running.tensor_parallel import split

        split(trained, mesh["tensor"])
    if "rows" in sizes:
        for block in (*_blocks(trained), trained):
            fully_shard(block, mesh=mesh["rows"])
    if len(sizes) > 1:
        # Warns on every rank that a full tensor takes two gathers.
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    parts = dict(trained.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [parts[names[id(parameter)]] for parameter in group["params"]]
    optimizer.state.clear()
    return trained


def _blocks(module: nn.Module) -> Iterator[Any]:
    """Layers of a model: the items of its outermost ModuleLists."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from _blocks(child)


def refuse_unshardable(config: Any, **others: Any) -> None:
    """Refuse flags that cannot be combined with ``--shard`` or ``--tensor-parallel``.

    Arguments:
        others: values of the other flags by name; falsy means not set.

    Raises:
        UsageError: one is set.
    """
    in_parts = {"--shard": config.shard, "--tensor-parallel": getattr(config, "tensor_parallel", 1) > 1}
    for mine in (flag for flag, asked in in_parts.items() if asked):
        for name in (name for name, asked in others.items() if asked):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{mine} and {flag} cannot be combined", fix=f"remove {mine} or {flag}")
