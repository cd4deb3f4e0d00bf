"""How far a step moves the weights, for all parameters at once; see ``sample.py``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stayfinite.measure.launching import Launcher, on_device
from stayfinite.measure.one_pass import READABLE, is_dense
from stayfinite.measure.tables import Addresses, Chunks, Span, cut, sent, spans_of

SUBSET = 16_384
"""Most elements read per parameter: enough for two digits, since each costs a whole memory sector."""

BLOCK = 1024
COMPARING_WARPS = 8
PLAIN = frozenset({nn.Parameter, Tensor})
"""Types with their data at ``data_ptr``; wrapper subclasses have none there."""


def spacing(size: int, subset: int = SUBSET) -> int:
    """Stride between the sampled elements: odd, so they are not all in the same columns."""
    return max(1, -(-size // subset)) | 1


@dataclass(frozen=True, slots=True)
class _Plan:
    """Sampled elements of each tensor; the tables are on the device."""

    chunks: Chunks
    strides: Tensor
    counts: Tensor
    offsets: Tensor
    """Offset of each tensor's elements in ``kept`` of its dtype."""
    kept: dict[torch.dtype, Tensor]
    alike: tuple[Span, ...]
    """Consecutive tensors of one dtype."""


class Movement:
    """Copies evenly spaced elements of weights before a step and compares them after it.

    Arguments:
        subset: most elements per tensor.
    """

    def __init__(self, device: torch.device, subset: int = SUBSET) -> None:
        self._device, self._subset = device, subset
        self._launch = Launcher()
        self._key: tuple[list[int], list[torch.dtype]] | None = None
        self._plan: _Plan
        self._met: list[int] = []
        self._addresses: Addresses
        self._where: Tensor

    def begin(self, tensors: Sequence[Tensor]) -> bool:
        """Copy elements of these tensors before the step. False if the kernels cannot read one of them."""
        from stayfinite.measure import kernels

        if not PLAIN.issuperset(map(type, tensors)):
            return False
        addresses = list(map(Tensor.data_ptr, tensors))
        # Tensors at the same addresses need no further check.
        if addresses != self._met:
            if not self._prepare(tensors):
                return False
            self._met = addresses
        self._where = self._addresses.table(addresses)
        plan = self._plan
        with on_device(self._device):
            for span in plan.chunks.spans:
                self._launch(
                    kernels.take_subset, span.count,
                    self._where, plan.chunks.owners, plan.chunks.places, plan.strides, plan.counts, plan.offsets,
                    span.first, plan.kept[span.dtype],
                    ELEMENT=kernels.ELEMENTS[span.dtype], BLOCK=BLOCK,
                )  # fmt: skip
        return True

    def forget(self) -> None:
        """Check the tensors again next time: others may be at the same addresses."""
        self._met = []

    def ratios(self, table: Tensor | None = None) -> Tensor:
        """Relative change of each tensor, after the step.

        Arguments:
            table: float64, one row per tensor; the result goes to the last column.

        Returns:
            The table, or a vector if none was passed.
        """
        from stayfinite.measure import kernels

        plan = self._plan
        if table is None:
            table = torch.empty(plan.chunks.tensors, dtype=torch.float64, device=self._device)
        columns = table.numel() // plan.chunks.tensors
        with on_device(self._device):
            for span in plan.alike:
                self._launch(
                    kernels.compare_subset, span.count,
                    self._where, plan.strides, plan.counts, plan.offsets, span.first, plan.kept[span.dtype], table,
                    ELEMENT=kernels.ELEMENTS[span.dtype], BLOCK=BLOCK, COLUMNS=columns, warps=COMPARING_WARPS,
                )  # fmt: skip
        return table

    def fork(self) -> Movement:
        """A copy for a CUDA graph, whose memory is never freed or moved."""
        fork = copy.copy(self)
        fork._addresses = Addresses(self._plan.chunks.tensors, self._device)
        return fork

    def _prepare(self, tensors: Sequence[Tensor]) -> bool:
        if not all(each.dtype in READABLE and is_dense(each) for each in tensors):
            return False
        key = ([tensor.numel() for tensor in tensors], [tensor.dtype for tensor in tensors])
        if key == self._key:
            return True
        sizes, dtypes = key
        strides = [spacing(size, self._subset) for size in sizes]
        counts = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
        offsets: list[int] = []
        ends: dict[torch.dtype, int] = {}
        for count, dtype in zip(counts, dtypes, strict=True):
            offsets.append(ends.get(dtype, 0))
            ends[dtype] = offsets[-1] + count
        chunks = cut(counts, dtypes, BLOCK, self._device)
        self._plan = _Plan(
            chunks=chunks,
            strides=sent(torch.tensor(strides, dtype=torch.int64), self._device),
            counts=sent(torch.tensor(counts, dtype=torch.int32), self._device),
            offsets=sent(torch.tensor(offsets, dtype=torch.int64), self._device),
            kept={dtype: torch.empty(end, dtype=dtype, device=self._device) for dtype, end in ends.items()},
            alike=spans_of(dtypes, range(len(dtypes) + 1)),
        )
        self._addresses = Addresses(len(tensors), self._device)
        self._key = key
        return True
