"""Parameters that legitimately have no gradient.

Unused parts of a library's model, experts without tokens, and the unread end of a stream after the last block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torch import nn

LIBRARIES = frozenset({
    "transformers", "diffusers", "timm", "torchvision", "torchaudio", "peft", "open_clip", "sentence_transformers",
    "clip", "monai", "fairseq", "speechbrain", "segmentation_models_pytorch", "mmdet", "mmcv", "mmengine", "detectron2",
})  # fmt: skip
MOST = 0.5  # above this share of all trainable tensors it is a fault
_EXPERT = re.compile(r"expert", re.IGNORECASE)
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def left_over(model: nn.Module, without: Sequence[str], alive: Sequence[str]) -> list[str]:
    """Parameters without a gradient that do not indicate a fault."""
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
