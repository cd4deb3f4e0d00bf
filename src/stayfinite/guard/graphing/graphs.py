"""Recording work on a CUDA device as graphs, which are then launched as a whole."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

import torch
from torch.optim import Optimizer


class Tape(Protocol):
    """Turns work into something that can be run again and again."""

    def aside(self) -> AbstractContextManager[object]:
        """Within, work that is not to be recorded runs as what is recorded will."""

    def record(self, *halves: Callable[[], None]) -> list[Callable[[], None]]:
        """Each half as a function that does its work on the device again, in the same memory."""


class CudaTape:
    """Records CUDA graphs, all in one memory pool and on one stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within, work runs on the stream that graphs are recorded on; the present one waits for it."""
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            present.wait_stream(self._stream)

    def record(self, *halves: Callable[[], None]) -> list[Callable[[], None]]:
        """Record each half; they have to be replayed in this order, and not among those of another recording."""
        with torch.cuda.device(self._device), nothing_collected():
            try:
                graphs = [self._graph(half) for half in halves]
            except RuntimeError:
                self._put_right()
                raise
        return [graph.replay for graph in graphs]

    def _graph(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as those that pin a loader's memory, may go on meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph

    def _put_right(self) -> None:
        """After a recording that broke off, which torch takes to be still under way.

        Memory that is freed would be held back for it, and no random number be drawn outside of it. The first is said
        to the allocator; a recording of next to nothing, which does end, sets the second right.
        """
        given_up, self._pool = self._pool, torch.cuda.graph_pool_handle()
        for end in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            with suppress(RuntimeError, AttributeError):  # torch's own doors, which a version may close
                getattr(torch._C, end)(torch.cuda.current_device(), given_up)
        nothing = torch.zeros(1, device=self._device)
        with suppress(RuntimeError):
            self._graph(nothing.zero_)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Within, Python collects no garbage: an old graph that is taken apart breaks off the recording of a new one."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def first_cause(error: BaseException) -> str:
    """What went wrong inside a recording; the error is often the complaint that it could not be ended."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {error}"


@contextmanager
def capturable(optimizer: Optimizer) -> Iterator[None]:
    """Within, the optimizer's step may be recorded. A fused one keeps all that it changes on the device anyway."""
    groups = [group for group in optimizer.param_groups if group.get("capturable") is False]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False
