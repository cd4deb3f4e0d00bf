"""A DataLoader whose order can be resumed in the middle, with known indices per batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

REMEMBERED = 1024
"""Batches whose indices are kept; workers fetch ahead, so the latest are not enough."""


class IndexTap:
    """Sampler wrapper that skips the first batches unread and remembers the indices of the others."""

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
        """Start the next iteration after this many batches."""
        self._skip = batches

    def prime(self) -> None:
        """Skip now, so the sampler draws its random numbers now."""
        while self._skip:
            self._skip -= 1
            self._number += 1
            if next(self._source, None) is None:
                self._skip = 0

    def items_of(self, number: int) -> list[Any]:
        """Indices of a batch in this iteration; empty if too long ago."""
        return next((items for place, items in self._recent if place == number), [])


KEPT = (
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
    "prefetch_factor", "persistent_workers",
)  # fmt: skip
"""Settings that a tapped loader keeps."""


def tapped(loader: DataLoader[Any]) -> tuple[DataLoader[Any], IndexTap] | None:
    """The same loader with a tap; None for an iterable dataset, which has no order."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    tap = IndexTap(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)
    whole = loader.batch_sampler is not None
    order: dict[str, Any] = {"batch_sampler": tap} if whole else {"sampler": tap, "batch_size": None}
    settings = {name: getattr(loader, name) for name in KEPT} | {"in_order": getattr(loader, "in_order", True)}
    return DataLoader(loader.dataset, **order, **settings), tap
