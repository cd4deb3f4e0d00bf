"""Tell permanently missing or zero gradients from legitimate ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.first_pass import first_pass

LIBRARIES = frozenset({
    "transformers", "diffusers", "timm", "torchvision", "torchaudio", "peft", "open_clip", "sentence_transformers",
    "clip", "monai", "fairseq", "speechbrain", "segmentation_models_pytorch", "mmdet", "mmcv", "mmengine", "detectron2",
})  # fmt: skip
MOST = 0.5  # above this share of all trainable tensors it is a fault
_EXPERT = lazy_regex(r"expert", re.IGNORECASE)
_NUMBER = lazy_regex(r"(?<=\.)\d+(?=\.)")


def left_over(model: nn.Module, without: Sequence[str], alive: Sequence[str]) -> list[str]:
    """Legitimate parameters without a gradient: unused library parts, idle experts, ends of the last block."""
    if not alive or len(without) > MOST * (len(without) + len(alive)):
        return []
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return []  # under DDP even a library's unused parameters stop the run
    working = {_EXPERT.split(name)[0] for name in alive if _EXPERT.search(name)}
    return [
        name
        for name in without
        if _of_library(model, name)
        or (_EXPERT.search(name) and _EXPERT.split(name)[0] in working)
        or _ends_in_last_block(model, name, alive)
    ]


def _of_library(model: nn.Module, name: str) -> bool:
    """Whether the innermost enclosing module that is not torch's belongs to a library."""
    path = name.rpartition(".")[0]
    while True:
        kind = type(model.get_submodule(path)).__module__.partition(".")[0]
        if kind != "torch":
            return kind in LIBRARIES
        if not path:
            return False
        path = path.rpartition(".")[0]


def _ends_in_last_block(model: nn.Module, name: str, alive: Sequence[str]) -> bool:
    """Whether it is in the last of several similar blocks, which is otherwise used, and used in earlier ones."""
    for blocks, number, rest in _in_blocks(name):
        others = model.get_submodule(blocks)
        last = isinstance(others, nn.ModuleList | nn.Sequential) and number == len(others) - 1 > 0
        at_work = any(other.startswith(f"{blocks}.{number}.") for other in alive)
        if last and at_work and f"{blocks}.{number - 1}.{rest}" in alive:
            return True
    return False


def _in_blocks(name: str) -> Iterator[tuple[str, int, str]]:
    """Every reading of a name as part of numbered blocks: `blocks`, 1, `out.weight`."""
    for found in _NUMBER.finditer(name):
        yield name[: found.start() - 1], int(found.group()), name[found.end() + 1 :]


NUDGE = 0.02  # standard deviation of the noise added to trainable values
SHAKE = 1.0  # the same, to change the routing of rows


def without_gradient_at_all(bench: Bench, zero: Sequence[str]) -> list[str]:
    """Parameters whose gradient stays exactly zero after all weights are perturbed.

    LoRA's second matrix, gates and last layers start at zero, so what precedes them gets a gradient only from the
    second step on. With slightly perturbed weights it gets one at once.
    """
    with bench.kept.undone():
        nudge(bench)
        again = first_pass(bench.model, bench.step, bench.scaler)
    if not again.worked:
        return []
    matrices = [name for name in zero if bench.trainable[name].dim() > 1]
    # A bias before a norm, and the key bias of attention, have a zero gradient by construction.
    return [name for name in matrices if (g := again.gradients[name]) is not None and not bool((g != 0).any())]


def routed_past(bench: Bench, none: Sequence[str]) -> list[str]:
    """Parameters next to others that get a gradient once weights are perturbed: experts.

    Then the rows decide which list members are used, and more rows will reach the rest. Members that a loop omits never
    get a gradient.
    """
    if isinstance(bench.model, nn.parallel.DistributedDataParallel):
        return []  # under DDP an unused part stops the run
    beside = {name: held for name in none if (held := _list_around(bench.model, name))}
    if not beside:
        return []
    with bench.kept.undone():
        nudge(bench, SHAKE)
        again = first_pass(bench.model, bench.step, bench.scaler)
    reached = {beside[name] for name in beside if again.gradients.get(name) is not None}
    return [name for name in none if beside.get(name) in reached]


def _list_around(model: nn.Module, name: str) -> str:
    """The innermost ModuleList or ModuleDict that holds a parameter."""
    path = name.rpartition(".")[0]
    while path:
        path = path.rpartition(".")[0]
        if isinstance(model.get_submodule(path), nn.ModuleList | nn.ModuleDict):
            return path or "."
    return ""


def nudge(bench: Bench, size: float = NUDGE) -> None:
    """Perturb every trainable value slightly."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in bench.trainable.values():
            noise = torch.randn(p.shape, generator=generator) * size
            p.add_(noise.to(device=p.device, dtype=p.dtype))
