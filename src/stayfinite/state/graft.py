"""Writing a saved structure into a living one, in place: planned first, done afterwards."""

from __future__ import annotations

import operator
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from stayfinite.state.shards import local_part

Fresh = Callable[[Tensor], Tensor]
"""Makes the tensor that is to live where there is none now."""


class Writes:
    """What is going to be written. Planning allocates and may fail; doing only copies and assigns."""

    def __init__(self) -> None:
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._assignments: list[Callable[[], object]] = []

    def copy(self, live: Tensor, saved: Tensor) -> None:
        """Copy a tensor of the same shape over a living one; of a sharded one, over this rank's part."""
        self._copies.append((local_part(live), saved))

    def put(self, live: MutableMapping[Any, Any], key: object, value: object) -> None:
        """Put a value into a living mapping, after all copies."""
        self._assignments.append(partial(operator.setitem, live, key, value))

    def drop(self, live: MutableMapping[Any, Any], key: object) -> None:
        """Take an entry out of a living mapping, after all copies."""
        self._assignments.append(partial(live.pop, key, None))

    def replace(self, live: dict[Any, Any], new: dict[Any, Any]) -> None:
        """Give a living dict a new content, after all copies."""

        def act() -> None:
            live.clear()
            live.update(new)

        self._assignments.append(act)

    def graft(self, live: Any, saved: Any, fresh: Fresh) -> Any:
        """Plan ``live`` to become equal to ``saved``; return what is to stand in its place.

        Tensors, dicts and lists that fit keep their identity; others are made anew.
        """
        if isinstance(saved, Tensor):
            if isinstance(live, Tensor) and fits(live, saved):
                self.copy(live, saved)
                return live
            return fresh(saved)
        if isinstance(live, Tensor) and live.numel() == 1 and type(saved) in (int, float):
            # A learning rate that lives on the device stays there, whatever kind of number was saved.
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
        """Write everything, and wait until it is written."""
        for live, saved in self._copies:
            live.copy_(saved, non_blocking=True)
        for act in self._assignments:
            act()
        for device in {live.device for live, _ in self._copies if live.is_cuda}:
            torch.cuda.current_stream(device).synchronize()


def fits(live: Tensor, saved: Tensor) -> bool:
    """Whether one can be copied over the other without a change of form."""
    part = local_part(live)
    return part.shape == saved.shape and part.dtype == saved.dtype
