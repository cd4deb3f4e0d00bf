"""Tables with the addresses and chunks of tensors, for kernels."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tensors of one dtype, or their chunks."""

    dtype: torch.dtype
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Chunks:
    """A list of tensors split into chunks; the tables are on the device."""

    tensors: int
    count: int
    sizes: Tensor
    """Elements per tensor, int64."""
    owners: Tensor
    """Tensor of each chunk, int32."""
    places: Tensor
    """Chunk number within its tensor, int32."""
    starts: Tensor
    """First chunk of each tensor, and the total number at the end, int32."""
    spans: tuple[Span, ...]


def cut(sizes: Sequence[int], dtypes: Sequence[torch.dtype], chunk: int, device: torch.device) -> Chunks:
    """Split tensors into chunks of ``chunk`` elements; an empty tensor has none."""
    elements = torch.tensor(sizes, dtype=torch.int64)
    each = (elements + (chunk - 1)) // chunk
    starts = torch.zeros(len(sizes) + 1, dtype=torch.int64)
    torch.cumsum(each, 0, out=starts[1:])
    owners = torch.repeat_interleave(torch.arange(len(sizes)), each)
    places = torch.arange(len(owners)) - starts[owners]
    return Chunks(
        tensors=len(sizes),
        count=len(owners),
        sizes=sent(elements, device),
        owners=sent(owners.int(), device),
        places=sent(places.int(), device),
        starts=sent(starts.int(), device),
        spans=spans_of(dtypes, starts.tolist()),
    )


def spans_of(dtypes: Sequence[torch.dtype], starts: Sequence[int]) -> tuple[Span, ...]:
    """Group consecutive tensors of one dtype, without empty groups; ``starts`` has each tensor's start and the last
    one's end.
    """
    spans: list[Span] = []
    begun = 0
    for dtype, group in groupby(dtypes):
        ended = begun + len(list(group))
        first, last = starts[begun], starts[ended]
        if last > first:
            spans.append(Span(dtype, first, last - first))
        begun = ended
    return tuple(spans)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Start an asynchronous copy to the device."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


class Addresses:
    """Addresses of some tensors in a device table, updated only when one has moved.

    During a CUDA graph capture the table belongs to the graph: in a replay the tensors have not moved.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._device = device
        self._known: list[int] = []
        self._table = torch.zeros(count, dtype=torch.int64, device=device)
        # Pinned memory cannot be allocated during a capture, and a graph reads it at every replay.
        self._sheet = torch.empty(count, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._in_graph: tuple[list[int], Tensor] | None = None

    def table(self, addresses: list[int]) -> Tensor:
        """Table of these addresses, each a tensor's ``data_ptr()``."""
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return self._captured(addresses)
        if addresses != self._known:
            numbers = torch.frombuffer(array("q", addresses), dtype=torch.int64)
            # New pinned memory each time: the last copy may still be in flight.
            staged = numbers.pin_memory() if self._device.type == "cuda" else numbers
            self._table.copy_(staged, non_blocking=True)
            self._known = addresses
        return self._table

    def _captured(self, addresses: list[int]) -> Tensor:
        if self._in_graph is None:
            self._sheet.copy_(torch.frombuffer(array("q", addresses), dtype=torch.int64))
            table = torch.empty_like(self._table)
            table.copy_(self._sheet, non_blocking=True)
            self._in_graph = (addresses, table)
        known, table = self._in_graph
        assert addresses == known, "one address table per recording; fork() gives another"
        return table
