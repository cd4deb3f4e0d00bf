"""Which file of a checkpoint holds what.

::

    state.json               everything but tensors, of rank 0; state-00001.json of rank 1 …
    model.safetensors        parameters and buffers, under their own names
    optimizer.safetensors    ema.safetensors    rest.safetensors
    model-00000-of-00002.safetensors …   the same of a sharded training: each rank's parts, in the layout of
                                         torch.distributed.checkpoint, so that its readers can put them together
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from stayfinite.state.training import TrainingState

GROUPS = ("model", "optimizer", "ema")
MODEL = "model."
STATE_VERSION = 1

Content = tuple[dict[str, Tensor], dict[str, str]]
"""Tensors by their name in the file, and the file's own metadata."""


def state_file(rank: int) -> str:
    """The name of a rank's file for everything but tensors."""
    return f"state-{rank:05d}.json" if rank else "state.json"


def rest_file(rank: int) -> str:
    """The name of a rank's file for tensors of its own: those of samplers and other extra parts."""
    return f"rest-{rank:05d}.safetensors" if rank else "rest.safetensors"


def name_in_file(name: str) -> str:
    """A tensor's name in a file: the model's bear the names that its author gave them."""
    return name.removeprefix(MODEL)


def group_of(name: str) -> str:
    """The part of the training that a tensor of a state belongs to."""
    group = name.split(".", 1)[0]
    return group if group in GROUPS else "rest"


def state_text(state: TrainingState, step: int, rank: int, ranks: int) -> bytes:
    """The text of a rank's file for everything but tensors."""
    record = {
        "version": STATE_VERSION,
        "step": step,
        "rank": rank,
        "ranks": ranks,
        "versions": {"stayfinite": _own_version(), "torch": torch.__version__, "python": platform.python_version()},
        "tree": state.tree,
    }
    return json.dumps(record, allow_nan=False).encode()


def files_of(state: TrainingState, rank: int, ranks: int) -> Iterator[tuple[str, Content]]:
    """The files of tensors that a rank has to write: its parts of sharded tensors; of whole ones rank 0 writes all."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in state.tensors.items():
        if group_of(name) == "rest" or _is_ours(state, name, tensor, rank):
            groups.setdefault(group_of(name), {})[name] = tensor
    for group, tensors in groups.items():
        named = {name_in_file(name): tensor for name, tensor in tensors.items()}
        if group == "rest":
            yield rest_file(rank), (named, {"format": "pt"})
        elif not any(name in state.shards for name in state.tensors if group_of(name) == group):
            yield f"{group}.safetensors", (named, {"format": "pt"})
        else:
            yield f"{group}-{rank:05d}-of-{ranks:05d}.safetensors", (named, _dcp_metadata(state, tensors))


def whole_forms(state: TrainingState) -> dict[str, tuple[tuple[int, ...], str]]:
    """Whole shape and dtype of each tensor."""
    return {
        name: (state.shards[name].whole if name in state.shards else tuple(tensor.shape), str(tensor.dtype))
        for name, tensor in state.tensors.items()
    }


def _is_ours(state: TrainingState, name: str, tensor: Tensor, rank: int) -> bool:
    shard = state.shards.get(name)
    if shard is None:
        return rank == 0
    return shard.owner and (tensor.numel() > 0 or (rank == 0 and 0 in shard.whole))


def _dcp_metadata(state: TrainingState, tensors: dict[str, Tensor]) -> dict[str, str]:
    offsets = {
        name_in_file(name): {
            "saved_offsets": list(state.shards[name].offset) if name in state.shards else [0] * tensor.dim()
        }
        for name, tensor in tensors.items()
    }
    return {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(offsets)}


def _own_version() -> Any:
    try:
        return metadata.version("stayfinite")
    except metadata.PackageNotFoundError:
        return None
