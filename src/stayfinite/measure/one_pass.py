"""All statistics of the gradients in one read."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import Tensor

from stayfinite.measure.launching import Launcher, on_device
from stayfinite.measure.tables import Addresses, Chunks, cut

READABLE = frozenset({torch.float32, torch.bfloat16, torch.float16})
"""Dtypes that the kernels support."""

COLUMNS = 5
"""Columns of the table; see ``sample.FIELDS``."""

FOLD_WIDTH, TOTAL_WIDTH = 512, 1024
_dtype = attrgetter("dtype")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """How the work is divided. It affects the last bit of the result, so it is the same everywhere."""

    chunk: int = 32_768
    """Elements per program."""
    block: int = 1024
    """Elements per read."""
    unroll: int = 8
    """Reads in flight."""
    warps: int = 4


TUNING = Tuning()


@dataclass(frozen=True, slots=True)
class Facts:
    """Statistics from one read of some tensors, on their device."""

    norms: Tensor
    """2-norm of each tensor, float64."""
    total: Tensor
    """2-norm of all of them, float32, shape []."""
    zeros: Tensor
    """Zero elements of each tensor, int64."""
    table: Tensor
    """Norm, largest magnitude (NaN if there is one), share of zeros (1 if empty), non-finite elements, and a free
    column for the update ratio: float64, [tensors, COLUMNS].
    """


class OnePass:
    """Reads lists of tensors on one device, with bitwise reproducible results.

    Arguments:
        device: a CUDA device, or the CPU with Triton's interpreter.
    """

    def __init__(self, device: torch.device, tuning: Tuning = TUNING) -> None:
        self._device = device
        self._tuning = tuning
        self._launch = Launcher()
        self._key: tuple[list[int], list[torch.dtype]] | None = None
        self._chunks: Chunks
        self._addresses: Addresses
        self._partial: tuple[Tensor, Tensor, Tensor, Tensor]
        self._squares: Tensor

    def read(self, tensors: Sequence[Tensor]) -> Facts | None:
        """Read one or more tensors, of any memory format.

        Returns:
            The statistics; None if a dtype is not in ``READABLE``.
        """
        from stayfinite.measure import kernels

        if not all(map(Tensor.is_contiguous, tensors)):
            tensors = [tensor if is_dense(tensor) else tensor.contiguous() for tensor in tensors]
        if not self._plan(tensors):
            return None
        chunks, tuning, device = self._chunks, self._tuning, self._device
        count = chunks.tensors
        norms = torch.empty(count, dtype=torch.float64, device=device)
        total = torch.empty((), dtype=torch.float32, device=device)
        zeros = torch.empty(count, dtype=torch.int64, device=device)
        table = torch.empty(count, COLUMNS, dtype=torch.float64, device=device)
        addresses = self._addresses.table(list(map(Tensor.data_ptr, tensors)))
        with on_device(device):
            for span in chunks.spans:
                self._launch(
                    kernels.look_at_chunks, span.count,
                    addresses, chunks.sizes, chunks.owners, chunks.places, span.first, *self._partial,
                    ELEMENT=kernels.ELEMENTS[span.dtype], BYTES=span.dtype.itemsize, CHUNK=tuning.chunk,
                    BLOCK=tuning.block, UNROLL=tuning.unroll, warps=tuning.warps,
                )  # fmt: skip
            self._launch(
                kernels.fold_chunks, count,
                chunks.starts, chunks.sizes, *self._partial, self._squares, norms, zeros, table,
                WIDTH=FOLD_WIDTH, COLUMNS=COLUMNS,
            )  # fmt: skip
            self._launch(kernels.fold_tensors, 1, self._squares, total, count, WIDTH=TOTAL_WIDTH)
        return Facts(norms, total, zeros, table)

    @property
    def plan(self) -> object:
        """Changes identity when tensors of other sizes or dtypes are read; None before the first."""
        return self._key

    def fork(self) -> OnePass:
        """A copy for a CUDA graph, whose memory is never freed or moved."""
        fork = copy.copy(self)
        fork._addresses = Addresses(self._chunks.tensors, self._device)
        return fork

    def _plan(self, tensors: Sequence[Tensor]) -> bool:
        # A gradient of another size or dtype must never be read with an old table.
        key = (list(map(Tensor.numel, tensors)), list(map(_dtype, tensors)))
        if key == self._key:
            return True
        if not READABLE.issuperset(key[1]):
            return False
        self._chunks = cut(*key, self._tuning.chunk, self._device)
        self._addresses = Addresses(len(tensors), self._device)
        self._partial = (
            torch.empty(self._chunks.count, dtype=torch.float32, device=self._device),
            torch.empty(self._chunks.count, dtype=torch.int32, device=self._device),
            torch.empty(self._chunks.count, dtype=torch.int32, device=self._device),
            torch.empty(self._chunks.count, dtype=torch.int32, device=self._device),
        )
        self._squares = torch.empty(len(tensors), dtype=torch.float64, device=self._device)
        self._key = key
        return True


def is_dense(tensor: Tensor) -> bool:
    """Whether the tensor fills a contiguous range of memory, in any order."""
    if tensor.is_contiguous():
        return True
    stretch = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != stretch:
                return False
            stretch *= size
    return True
