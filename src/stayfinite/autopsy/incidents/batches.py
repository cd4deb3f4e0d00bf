"""Keep a batch unchanged, in a few microseconds, whatever the forward pass does with it."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Iterable
from typing import Any

from torch import Tensor

LONG = 64
"""Longer lists are treated as data, such as words, and not searched."""


def own_copy(batch: Any) -> Any:
    """The same tensors in new containers, so items that a forward pass pops or adds do not change the original."""
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
    """Tensors of a batch that are found without a deep search."""
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
