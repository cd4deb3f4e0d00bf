"""Checkpoints of sharded trainings (FSDP2), read with torch.distributed.checkpoint for any number of ranks.

torch's own format has a pickle as its table of contents (``.metadata``), which is unsafe to load. Here each rank's
shards are in safetensors files in the layout of torch's safetensors reader, which needs no such table; so a checkpoint
of 2 ranks can be read on 1 or 4, and so can an unsharded one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import StateError
from stayfinite.state import shelf
from stayfinite.state.contents import group_of, name_in_file
from stayfinite.state.parts import TrainingParts
from stayfinite.state.shards import Shard, is_spread, local_part, shard_of
from stayfinite.state.tree import MARK


def agree_on_token() -> str:
    """One token for all ranks, for ``Checkpointer(token=…)``. A collective: call it once per rank at the start."""
    import torch.distributed as dist

    token = [shelf.own_token()]
    if dist.is_available() and dist.is_initialized():
        dist.broadcast_object_list(token, src=0)
    return token[0]


def needs_parts(parts: TrainingParts) -> bool:
    """Whether a training is sharded or in stages, so each rank reads only its part."""
    return parts.writes is not None or any(map(is_spread, parts.named().values()))


def read_parts(
    path: Path, tree: Mapping[str, Any], parts: TrainingParts | None
) -> tuple[dict[str, Tensor], dict[str, Shard]]:
    """Read what this rank needs: its shards, and all unsharded tensors.

    Raises:
        StateError: something is missing, or its shape differs from the training's.
    """
    reader = _reader(path)
    saved = reader.read_metadata().state_dict_metadata
    wanted = {name_in_file(name): name for name in _names(tree)}
    missing = sorted(set(wanted) - set(saved))
    if missing:
        raise StateError(f"{len(missing)} tensors are missing from the checkpoint, first {missing[0]}")
    living = {} if parts is None else _living(parts)
    tensors: dict[str, Tensor] = {}
    shards: dict[str, Shard] = {}
    regions: dict[str, Any] = {}
    for key, name in wanted.items():
        form = saved[key]
        like = _like(name, tuple(form.size), living)
        if like is not None and (shard := shard_of(like)) is not None:
            shards[name] = shard
            tensors[name] = torch.empty(local_part(like).shape, dtype=form.properties.dtype)
            regions[key] = _Region(tensor=tensors[name], whole=form.size, offset=torch.Size(shard.offset))
        else:
            tensors[name] = torch.empty(form.size, dtype=form.properties.dtype)
            regions[key] = _Region(tensor=tensors[name], whole=form.size, offset=torch.Size([0] * len(form.size)))
    _load(regions, reader)
    return tensors, shards


@dataclass(frozen=True, kw_only=True, slots=True)
class _Region:
    """A region of a tensor to read, for torch.distributed.checkpoint."""

    tensor: Tensor
    whole: torch.Size
    offset: torch.Size

    def size(self) -> torch.Size:
        return self.whole

    def __create_chunk_list__(self) -> list[Any]:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        if not self.tensor.numel():
            return []
        return [ChunkStorageMetadata(offsets=self.offset, sizes=self.tensor.shape)]


def _reader(path: Path) -> Any:
    try:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    except ImportError as error:
        raise StateError(
            f"reading a sharded checkpoint needs a newer torch than {torch.__version__}", fix="pip install 'torch>=2.9'"
        ) from error
    return HuggingFaceStorageReader(str(path))


def _load(regions: dict[str, Any], reader: Any) -> None:
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import load

    class Planner(DefaultLoadPlanner):
        """Default planner for regions instead of tensors."""

        def set_up_planner(self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False) -> None:
            self.original_state_dict = self.state_dict = state_dict
            self.mappings = {}
            self.metadata = metadata
            self.is_coordinator = is_coordinator

        def lookup_tensor(self, index: Any) -> Tensor:
            region: _Region = self.state_dict[index.fqn]
            return region.tensor

    planner = Planner(flatten_state_dict=False, flatten_sharded_tensors=False)
    with warnings.catch_warnings():
        # It warns about reading in one process, which is intended: ranks need not wait for each other.
        warnings.simplefilter("ignore")
        load(regions, storage_reader=reader, planner=planner, no_dist=True)


def _names(tree: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"model.{name}" for name in (*tree["parameters"], *tree["buffers"]))
    yield from (f"ema.{name}" for name in tree["averages"])
    yield from (name for name in _tensors_in(tree["optimizer"]) if group_of(name) == "optimizer")


def _tensors_in(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict) and tree.get(MARK) in ("tensor", "array"):
        yield tree["v"]
    elif isinstance(tree, dict | list):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from _tensors_in(each)


def _living(parts: TrainingParts) -> dict[str, Tensor]:
    tensors = {f"model.{name}": tensor for name, tensor in (parts.named() | parts.buffers()).items()}
    return tensors | {f"ema.{name}": tensor for name, tensor in parts.averages().items()}


def _like(name: str, shape: tuple[int, ...], living: Mapping[str, Tensor]) -> Tensor | None:
    """The live tensor whose layout a saved one gets: itself or, for a moment, its parameter."""
    found = living.get(name)
    if found is None and name.startswith("optimizer.state."):
        owner = name.removeprefix("optimizer.state.").rpartition(".")[0]
        found = living.get(f"model.{owner}")
    return found if found is not None and tuple(found.shape) == shape else None
