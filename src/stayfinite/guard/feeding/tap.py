"""A DataLoader whose order can be joined in the middle, and which knows the items of each batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

REMEMBERED = 1024
"""Batches whose items are remembered; workers fetch ahead, so the latest are not enough."""


class IndexTap:
    """Stands between a DataLoader and its sampler: passes over the first batches unread, and remembers the rest."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._skip = 0
        self._source: Iterator[Any] = iter(())
        self._number = 0
        self._recent: deque[tuple[int, list[Any]]] = deque(maxlen=REMEMBERED)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> IndexTap:
        self._source = iter(self._sampler)
        self._number = 0
        self._recent.clear()
        return self

    def __next__(self) -> Any:
        self.prime()
        indices = next(self._source)
        self._recent.append((self._number, list(indices) if isinstance(indices, list | tuple) else [indices]))
        self._number += 1
        return indices

    def skip_next(self, batches: int) -> None:
        """The coming iteration starts after so many batches."""
        self._skip = batches

    def prime(self) -> None:
        """Pass over now what is to be passed over, so that the sampler draws its random numbers now."""
        while self._skip:
            self._skip -= 1
            self._number += 1
            if next(self._source, None) is None:
                self._skip = 0

    def items_of(self, number: int) -> list[Any]:
        """The items of a batch of this iteration; empty when it was too long ago."""
        return next((items for place, items in self._recent if place == number), [])


def tapped(loader: DataLoader[Any]) -> tuple[DataLoader[Any], IndexTap] | None:
    """The same loader over a tap; None for a loader that has no order to tap (an iterable data set)."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    tap = IndexTap(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)
    order: dict[str, Any] = {"batch_sampler": tap} if loader.batch_sampler is not None else {"sampler": tap}
    if loader.batch_sampler is None:
        order["batch_size"] = None
    settings = {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "in_order": getattr(loader, "in_order", True),
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
        "generator": loader.generator,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
    }
    return DataLoader(loader.dataset, **order, **settings), tap
