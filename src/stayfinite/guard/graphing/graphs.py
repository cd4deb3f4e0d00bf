"""Capture CUDA graphs."""

import gc
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

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


class Tape(Protocol):
    """Turns work into something that can be replayed."""

    def aside(self) -> AbstractContextManager[object]:
        """Context for unrecorded work under the same conditions as recorded work."""

    def record(self, *halves: Callable[[], None]) -> list[Callable[[], None]]:
        """Return each half as a function that repeats its work in the same memory."""


class CudaTape:
    """Captures CUDA graphs in one memory pool and on one stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Context on the capture stream; the current stream waits for it."""
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            present.wait_stream(self._stream)

    def record(self, *halves: Callable[[], None]) -> list[Callable[[], None]]:
        """Capture each half; replay them in this order, not mixed with another recording."""
        with torch.cuda.device(self._device), nothing_collected():
            try:
                graphs = [self._graph(half) for half in halves]
            except RuntimeError:
                self._put_right()
                raise
        return [graph.replay for graph in graphs]

    def _graph(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as a loader's pinning thread, may continue.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph

    def _put_right(self) -> None:
        """Clean up after a failed capture, which torch considers unfinished.

        Otherwise freed memory would be held back for it, and no random number could be drawn outside of it. The first
        is fixed by telling the allocator, the second by a trivial capture that succeeds.
        """
        given_up, self._pool = self._pool, torch.cuda.graph_pool_handle()
        for end in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            with suppress(RuntimeError, AttributeError):  # private functions, which a torch version may remove
                getattr(torch._C, end)(torch.cuda.current_device(), given_up)
        nothing = torch.zeros(1, device=self._device)
        with suppress(RuntimeError):
            self._graph(nothing.zero_)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Context without garbage collection: destroying an old graph would abort a capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def first_cause(error: BaseException) -> str:
    """The original error of a failed capture; the last one is often that it could not be ended."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {error}"


@contextmanager
def capturable(optimizer: Optimizer) -> Iterator[None]:
    """Context in which the optimizer's step can be captured. A fused one keeps its state on the device anyway."""
    groups = [group for group in optimizer.param_groups if group.get("capturable") is False]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False
