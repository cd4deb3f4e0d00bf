"""Layout of a checkpoint.

::

    state.json               everything but tensors, of rank 0; state-00001.json of rank 1 …
    model.safetensors        parameters and buffers, under their own names
    optimizer.safetensors    ema.safetensors    rest.safetensors
    model-00000-of-00002.safetensors …   for sharded training: each rank's shards, in the layout of
                                         torch.distributed.checkpoint, whose readers can combine them
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
"""Tensors by name in the file, and the file's metadata."""


def state_file(rank: int) -> str:
    """Name of a rank's file for everything but tensors."""
    return f"state-{rank:05d}.json" if rank else "state.json"


def rest_file(rank: int) -> str:
    """Name of a rank's file for its own tensors: those of samplers and other extra parts."""
    return f"rest-{rank:05d}.safetensors" if rank else "rest.safetensors"


def name_in_file(name: str) -> str:
    """Name of a tensor in a file: model tensors have no prefix."""
    return name.removeprefix(MODEL)


def group_of(name: str) -> str:
    """Part of the training that a tensor belongs to."""
    group = name.split(".", 1)[0]
    return group if group in GROUPS else "rest"


def state_text(state: TrainingState, step: int, rank: int, ranks: int) -> bytes:
    """Content of a rank's file for everything but tensors."""
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
    """Tensor files that a rank writes: its shards; rank 0 also writes all unsharded tensors."""
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
    """Full shape and dtype of each tensor."""
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
