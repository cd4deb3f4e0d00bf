"""Compile a model's blocks for training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from stayfinite.autopsy.steps.surroundings import is_compiled


def compile_blocks(model: nn.Module, say: Callable[[str], None], backend: str = "inductor") -> None:
    """Compile every transformer block in place, for any batch size.

    Blocks of one class share code, so depth does not add compile time. Weight names, checkpoints and the autopsy are
    unaffected: incidents re-run uncompiled.
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
    """Run compiled blocks eagerly within this context, since generation changes shape at every token."""
    return torch.compiler.set_stance("force_eager") if is_compiled(model) else nullcontext()
