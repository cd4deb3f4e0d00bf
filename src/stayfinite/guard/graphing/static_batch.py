"""A batch with tensors at fixed addresses, so a CUDA graph finds each new batch in the same place."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import UsageError

Form = tuple[Any, ...]
"""Structure of a batch without its values; batches of one form fit the same graph."""


def form_of(batch: Any) -> Form:
    """Form of a batch: containers, names, shapes, dtypes, and plain values.

    Raises:
        UsageError: it contains something that cannot be copied into place.
    """
    if isinstance(batch, Tensor):
        return ("tensor", tuple(batch.shape), batch.dtype)
    if isinstance(batch, Mapping | UserDict):
        return ("mapping", *((name, form_of(item)) for name, item in batch.items()))
    if isinstance(batch, list | tuple):
        return (type(batch).__name__, *(form_of(item) for item in batch))
    if batch is None or isinstance(batch, str | bytes | int | float | torch.dtype | torch.device):
        return ("value", batch)
    raise UsageError(
        f"a graphed step cannot copy a batch with a {type(batch).__name__} in it",
        fix="use tensors and plain values, in dicts, lists and tuples",
    )


class StaticBatch:
    """Copies of a batch's tensors on a device, overwritten by each new batch of the same form."""

    def __init__(self, batch: Any, device: torch.device) -> None:
        self._tensors: list[Tensor] = []
        self._device = device
        self.batch = self._twin(batch)
        """Input of the forward pass; any mapping becomes a dict."""

    def take(self, batch: Any) -> None:
        """Copy a batch of the same form into place, asynchronously."""
        given: list[Tensor] = []
        _gather(batch, given)
        for own, new in zip(self._tensors, given, strict=True):
            own.copy_(new, non_blocking=True)

    def _twin(self, item: Any) -> Any:
        if isinstance(item, Tensor):
            own = torch.empty_like(item, device=self._device).copy_(item)
            self._tensors.append(own)
            return own
        if isinstance(item, Mapping | UserDict):
            return {name: self._twin(each) for name, each in item.items()}
        if isinstance(item, list | tuple):
            twins = [self._twin(each) for each in item]
            return type(item)(*twins) if hasattr(item, "_fields") else type(item)(twins)
        return item


def _gather(item: Any, found: list[Tensor]) -> None:
    if isinstance(item, Tensor):
        found.append(item)
    elif isinstance(item, Mapping | UserDict):
        for each in item.values():
            _gather(each, found)
    elif isinstance(item, list | tuple):
        for each in item:
            _gather(each, found)
