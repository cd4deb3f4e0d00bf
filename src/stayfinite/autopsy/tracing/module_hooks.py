"""Hooks on every module that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn


@contextmanager
def every_module_heard(enter: Callable[..., Any], leave: Callable[..., Any]) -> Iterator[None]:
    """Call ``enter`` and ``leave`` as torch hooks before and after each module, also one that fails.

    For all modules, not only the model's: a teacher or averaged weights may be part of the loss.
    """
    with ExitStack() as hung:
        for hook in (
            nn.modules.module.register_module_forward_pre_hook(enter),
            nn.modules.module.register_module_forward_hook(leave, always_call=True),
        ):
            hung.callback(hook.remove)
        yield
