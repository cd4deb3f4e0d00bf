"""Several batches a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, TypeVar

from torch import nn
from torch.nn.parallel import DistributedDataParallel

Batch = TypeVar("Batch")


def grouped(batches: Iterable[Batch], size: int, *, over: Callable[[], bool] = lambda: False) -> Iterator[list[Batch]]:
    """So many batches at a time; the last group of an epoch may be smaller, and is a step too.

    Arguments:
        over: whether training ends here; asked before a group is taken, so that no batch is taken in vain.
    """
    source = iter(batches)
    while not over() and (group := list(islice(source, size))):
        yield group


def sending(model: nn.Module, *, now: bool) -> AbstractContextManager[Any]:
    """For forward and backward of one batch of a step: gradients go to the other processes only with the last one."""
    return nullcontext() if now or not isinstance(model, DistributedDataParallel) else model.no_sync()
