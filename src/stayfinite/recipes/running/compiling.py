"""A model whose blocks are compiled for training, and run as they are written everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from stayfinite.autopsy.steps.surroundings import is_compiled


def compile_blocks(model: nn.Module, say: Callable[[str], None], backend: str = "inductor") -> None:
    """Compile every block of a transformer in place, for batches of any size.

    Blocks of one kind share their code, so that a model of many layers waits no longer than one of two. Names of
    weights, checkpoints and the autopsy are not touched: an incident is re-run as the model is written.
    """
    kinds = set(getattr(model, "_no_split_modules", None) or ())
    blocks = [module for module in model.modules() if type(module).__name__ in kinds]
    for block in blocks:
        block.compile(dynamic=True, backend=backend)
    if blocks:
        say(f"compiling {len(blocks)} blocks: the first steps take up to two minutes")
    else:
        say("not compiled: no repeated blocks found in this model")


def as_written(model: nn.Module) -> AbstractContextManager[Any]:
    """Within, compiled blocks run uncompiled: a generation has a new shape at every token."""
    return torch.compiler.set_stance("force_eager") if is_compiled(model) else nullcontext()
