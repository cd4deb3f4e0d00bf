"""Autocast that stays in effect when the training's own autocast is disabled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def autocast_region(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Enable autocast with this dtype; disable it for None."""
    enabled, before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    nested = torch.autocast_increment_nesting()
    torch.set_autocast_enabled(device, dtype is not None)
    if dtype is not None:
        torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, before)
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        del nested
