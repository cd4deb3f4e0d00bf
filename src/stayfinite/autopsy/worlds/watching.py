"""How large a module's output becomes while a step runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_iter


@contextmanager
def largest_output(model: nn.Module, path: str) -> Iterator[list[float]]:
    """Yields a list that holds the largest finite magnitude of a module's output; empty if it did not run."""
    seen: list[float] = []

    def watch(_module: nn.Module, _inputs: Any, output: Any) -> None:
        for item in tree_iter(output):
            if isinstance(item, Tensor) and item.is_floating_point() and item.numel():
                value = float(item.detach().abs().amax())
                if math.isfinite(value) and (not seen or value > seen[0]):
                    seen[:] = [value]

    try:
        module = model.get_submodule(path)
    except AttributeError:
        yield seen
        return
    hook = module.register_forward_hook(watch)
    try:
        yield seen
    finally:
        hook.remove()
