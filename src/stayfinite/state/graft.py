"""Write a saved structure into a live one, in place: planned first, then executed."""

from __future__ import annotations

import operator
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from stayfinite.state.shards import local_part

Fresh = Callable[[Tensor], Tensor]
"""Creates a tensor where there is none yet."""


class Writes:
    """Planned writes. Planning allocates and may fail; executing only copies and assigns."""

    def __init__(self) -> None:
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._assignments: list[Callable[[], object]] = []

    def copy(self, live: Tensor, saved: Tensor) -> None:
        """Copy over a live tensor of the same shape; for a sharded one, over this rank's shard."""
        self._copies.append((local_part(live), saved))

    def put(self, live: MutableMapping[Any, Any], key: object, value: object) -> None:
        """Set an entry of a live mapping, after all copies."""
        self._assignments.append(partial(operator.setitem, live, key, value))

    def drop(self, live: MutableMapping[Any, Any], key: object) -> None:
        """Remove an entry of a live mapping, after all copies."""
        self._assignments.append(partial(live.pop, key, None))

    def replace(self, live: dict[Any, Any], new: dict[Any, Any]) -> None:
        """Replace the content of a live dict, after all copies."""

        def act() -> None:
            live.clear()
            live.update(new)

        self._assignments.append(act)

    def graft(self, live: Any, saved: Any, fresh: Fresh) -> Any:
        """Plan ``live`` to become equal to ``saved``; return the object to use in its place.

        Matching tensors, dicts and lists keep their identity; others are created.
        """
        if isinstance(saved, Tensor):
            if isinstance(live, Tensor) and fits(live, saved):
                self.copy(live, saved)
                return live
            return fresh(saved)
        if isinstance(live, Tensor) and live.numel() == 1 and type(saved) in (int, float):
            # A learning rate tensor stays on its device, whatever kind of number was saved.
            self.copy(live, torch.full_like(local_part(live), saved, device="cpu"))
            return live
        if isinstance(saved, dict):
            of = live if isinstance(live, dict) else {}
            new = {key: self.graft(of.get(key), each, fresh) for key, each in saved.items()}
            if not isinstance(live, dict):
                return new
            self.replace(live, new)
            return live
        if isinstance(saved, list | tuple):
            like = live if isinstance(live, list | tuple) and len(live) == len(saved) else [None] * len(saved)
            items = [self.graft(a, b, fresh) for a, b in zip(like, saved, strict=True)]
            return tuple(items) if isinstance(saved, tuple) else items
        return saved

    @torch.no_grad()
    def do(self) -> None:
        """Execute all writes, and wait for them."""
        for live, saved in self._copies:
            live.copy_(saved, non_blocking=True)
        for act in self._assignments:
            act()
        for device in {live.device for live, _ in self._copies if live.is_cuda}:
            torch.cuda.current_stream(device).synchronize()


def fits(live: Tensor, saved: Tensor) -> bool:
    """Whether shapes and dtypes match."""
    part = local_part(live)
    return part.shape == saved.shape and part.dtype == saved.dtype
