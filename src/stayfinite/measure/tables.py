"""Tables that tell a kernel where tensors are and how they are cut into chunks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """Tensors of one dtype, or their chunks, one after the other."""

    dtype: torch.dtype
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Chunks:
    """A list of tensors, cut into chunks; the tables are on the device."""

    tensors: int
    count: int
    sizes: Tensor
    """Elements of each tensor, int64."""
    owners: Tensor
    """The tensor that a chunk belongs to, int32."""
    places: Tensor
    """The chunk's number within its tensor, int32."""
    starts: Tensor
    """The first chunk of each tensor, and the number of chunks at the end, int32."""
    spans: tuple[Span, ...]


def cut(sizes: Sequence[int], dtypes: Sequence[torch.dtype], chunk: int, device: torch.device) -> Chunks:
    """Cut tensors of these sizes into chunks of so many elements; an empty tensor has none."""
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
    """Neighbors of one dtype together; ``starts`` says where each tensor's part begins, and where the last one's ends.

    What has no part at all is left out.
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
    """A copy on the device, under way when this returns."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


class Addresses:
    """Where some tensors are, as a table on the device that is sent anew only when one of them has moved.

    While a CUDA graph is captured the table belongs to the graph: the tensors of a replay are where they were.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._device = device
        self._known: list[int] = []
        self._table = torch.zeros(count, dtype=torch.int64, device=device)
        # Pinned memory cannot be had while a graph is captured, and a graph reads it again at every replay.
        self._sheet = torch.empty(count, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._in_graph: tuple[list[int], Tensor] | None = None

    def table(self, addresses: list[int]) -> Tensor:
        """The table of these addresses, each a tensor's ``data_ptr()``."""
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return self._captured(addresses)
        if addresses != self._known:
            numbers = torch.frombuffer(array("q", addresses), dtype=torch.int64)
            # Each time in pinned memory of its own: the last copy may still be under way.
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
