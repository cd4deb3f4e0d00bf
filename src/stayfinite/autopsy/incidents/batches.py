"""Holding on to a batch, for a few microseconds, while a forward pass does with it what it likes."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Iterable
from typing import Any

from torch import Tensor

LONG = 64
"""A list of more items is taken for data, such as words, and not looked into."""


def own_copy(batch: Any) -> Any:
    """The same tensors in containers of its own: what a forward pass pops or puts in leaves the original alone."""
    kind = type(batch)
    if kind is dict:
        return {name: own_copy(item) for name, item in batch.items()}
    if kind is list or kind is tuple:
        return kind(batch) if len(batch) > LONG else kind([own_copy(item) for item in batch])
    if isinstance(batch, UserDict):
        twin = copy.copy(batch)
        twin.data = own_copy(batch.data)
        return twin
    return copy.copy(batch) if isinstance(batch, dict | list) else batch


def tensors_of(batch: Any) -> list[Tensor]:
    """The tensors of a batch that are reached without much searching."""
    if isinstance(batch, Tensor):
        return [batch]
    items: Iterable[Any]
    if isinstance(batch, dict | UserDict):
        items = batch.values()
    elif isinstance(batch, list | tuple) and len(batch) <= LONG:
        items = batch
    else:
        return []
    found: list[Tensor] = []
    for item in items:
        if isinstance(item, Tensor):
            found.append(item)
        elif not isinstance(item, str | int | float):
            found += tensors_of(item)
    return found
