"""Gradient accumulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, TypeVar

from torch import nn
from torch.nn.parallel import DistributedDataParallel

Batch = TypeVar("Batch")


def grouped(batches: Iterable[Batch], size: int, *, over: Callable[[], bool] = lambda: False) -> Iterator[list[Batch]]:
    """Groups of ``size`` batches; the last of an epoch may be smaller.

    Arguments:
        over: whether training ends; checked before batches are read.
    """
    source = iter(batches)
    while not over() and (group := list(islice(source, size))):
        yield group


def sending(model: nn.Module, *, now: bool) -> AbstractContextManager[Any]:
    """Context for one batch of a step: DDP syncs gradients only for the last (``now``)."""
    return nullcontext() if now or not isinstance(model, DistributedDataParallel) else model.no_sync()
