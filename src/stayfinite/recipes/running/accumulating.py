"""Several batches a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Batch = TypeVar("Batch")


def grouped(batches: Iterable[Batch], size: int) -> Iterator[list[Batch]]:
    """So many batches at a time; the last group of an epoch may be smaller, and is a step too."""
    group: list[Batch] = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
