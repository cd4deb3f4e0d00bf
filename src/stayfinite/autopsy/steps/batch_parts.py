"""Parts of a batch: its tensors by name, its rows, copies with changed tensors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor


def batch_items(batch: Any) -> dict[str, Tensor]:
    """Tensors of a batch by name: `batch.labels`, `batch.0`."""
    return dict(_walk(batch, "batch"))


def batch_size(batch: Any) -> int | None:
    """Number of rows of a batch; None if unknown.

    The length of a list of samples; otherwise the most common first dimension, or second for sequence-first tensors.
    """
    if _is_list_of_samples(batch):
        return len(batch)
    shapes = [tuple(item.shape) for item in batch_items(batch).values() if item.dim()]
    votes: dict[int, float] = {}
    for shape in shapes:
        votes[shape[0]] = votes.get(shape[0], 0.0) + 1.0
    for length in _lists(batch):
        votes[length] = votes.get(length, 0.0) + 1.0
    for size in votes:
        votes[size] += sum(0.9 for shape in shapes if shape[0] != size and len(shape) > 1 and shape[1] == size)
    best = max(votes, key=lambda size: votes[size], default=0)
    return best or None


def take_rows(batch: Any, rows: list[int], size: int) -> Any:
    """A batch with these rows only; parts without a dimension of that size stay whole."""
    if _is_list_of_samples(batch):
        return type(batch)(batch[row] for row in rows)

    def pick(item: Any) -> Any:
        if isinstance(item, Tensor):
            for dimension in (0, 1):
                if item.dim() > dimension and item.shape[dimension] == size:
                    return item.index_select(dimension, torch.tensor(rows, device=item.device))
        if isinstance(item, list | tuple) and item is not batch and len(item) == size:
            return type(item)(item[row] for row in rows)
        return item

    return with_changed(batch, pick)


def bad_rows(item: Tensor, size: int) -> list[int]:
    """Batch rows in which a tensor is not finite."""
    places = (~item.isfinite()).nonzero()
    for dimension in (0, 1):
        if item.dim() > dimension and item.shape[dimension] == size:
            return sorted(places[:, dimension].unique().tolist())
    return []


def with_changed(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Copy of the batch with ``change`` applied to every part; changed parts are not searched further."""
    changed = change(batch)
    if changed is not batch:
        return changed
    if isinstance(batch, MutableMapping):
        made = copy.copy(batch)
        for name, value in batch.items():
            made[name] = with_changed(value, change)
        return made
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        values = [with_changed(value, change) for value in batch]
        kind: Any = type(batch)
        return kind._make(values) if hasattr(kind, "_make") else kind.of(batch._fields, values)
    if isinstance(batch, list | tuple):
        return type(batch)(with_changed(value, change) for value in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        fields = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch) if field.init}
        return dataclasses.replace(batch, **{name: with_changed(value, change) for name, value in fields.items()})
    return batch


def _walk(part: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(part, Tensor):
        yield name, part
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield from _walk(value, f"{name}.{key}")
    elif isinstance(part, list | tuple):
        for index, value in enumerate(part):
            yield from _walk(value, f"{name}.{index}")
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            yield from _walk(getattr(part, field.name), f"{name}.{field.name}")


def _lists(batch: Any) -> Iterator[int]:
    """Lengths of lists under a key, one sample each."""
    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple) else ()
    return (len(value) for value in values if isinstance(value, list) and value)


def _is_list_of_samples(batch: Any) -> bool:
    """Whether it is a list of similar, uncollated samples (tuples hold inputs and labels)."""
    if not isinstance(batch, list) or len(batch) < 2:
        return False
    kinds = {type(each) for each in batch}
    if len(kinds) != 1:
        return False
    if issubclass(next(iter(kinds)), Tensor):  # tensors with the same first dimension are columns, not samples
        return len({tuple(each.shape[:1]) for each in batch}) > 1
    return issubclass(next(iter(kinds)), tuple | dict | list)
