"""A model that all ranks train: each holds all of it (DDP), or a part (``--shard``, ``--tensor-parallel``)."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from stayfinite.errors import UsageError
from stayfinite.recipes.running.processes import Place


class Team:
    """The model as it is trained; the model that was given stays whole, to be evaluated and saved.

    Without parts both have the same weights. With them, what is trained is a copy, of which each rank holds a part; the
    whole one has weights alone, a quarter of what a training in one process holds.

    Arguments:
        model: on its device.
        optimizer: of its parameters; has taken no step. It is given the parts that are trained here.
        place: where ranks compute layers together (``--tensor-parallel``), each holds a part of those, and several
            such groups share the weights among them as well.
        shard: whether each rank holds a part.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, place: Place, *, shard: bool = False) -> None:
        self._in_parts = place.count > 1 and (shard or place.tensor > 1)
        self._whole = model
        self.trained: Any = _in_parts(model, optimizer, place) if self._in_parts else place.shared(model)
        """What is called in training."""

    @torch.no_grad()
    def gather(self) -> None:
        """Bring the whole model up to date. Every rank calls it."""
        if not self._in_parts:
            return
        whole = self._whole.state_dict(keep_vars=True)
        for name, value in self.trained.state_dict().items():
            whole[name].copy_(value.full_tensor() if hasattr(value, "full_tensor") else value)


def _in_parts(model: nn.Module, optimizer: Optimizer, place: Place) -> nn.Module:
    """A copy of the model in parts, which the optimizer has from now on."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # It warns of blocks whose output is written to in place; those of the recipes are not.
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
        # It warns on every rank that a whole tensor takes two gatherings to be had.
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    parts = dict(trained.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [parts[names[id(parameter)]] for parameter in group["params"]]
    optimizer.state.clear()
    return trained


def _blocks(module: nn.Module) -> Iterator[Any]:
    """The layers of a model: what its lists hold, but for lists within."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from _blocks(child)


def refuse_unshardable(config: Any, **others: Any) -> None:
    """Refuse ``--shard`` and ``--tensor-parallel`` beside what they do not work with.

    Arguments:
        others: flags by name, each with what is asked for; what is false or empty is not asked for.

    Raises:
        UsageError: one of them is.
    """
    in_parts = {"--shard": config.shard, "--tensor-parallel": getattr(config, "tensor_parallel", 1) > 1}
    for mine in (flag for flag, asked in in_parts.items() if asked):
        for name in (name for name, asked in others.items() if asked):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{mine} and {flag} cannot be combined", fix=f"remove {mine} or {flag}")
