"""All that is to be known of the gradients, in one read of them."""

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
"""Dtypes that the kernels read."""

EXPONENTS = 256
"""Bins of the histogram: one for each exponent of a float32; 0 holds zeros and subnormal numbers, 255 what is not
finite, and bin b the magnitudes from 2 ** (b - 127) up to the next power of two."""

COLUMNS = 5
"""Of the table: a row is a row of a sample, see ``sample.FIELDS``."""

FOLD_WIDTH, TOTAL_WIDTH = 512, 1024
_dtype = attrgetter("dtype")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """How the work is divided. The result depends on it in the last bit, so it is the same everywhere."""

    chunk: int = 32_768
    """Elements that one program reads."""
    block: int = 1024
    """Elements that it reads at a time."""
    unroll: int = 8
    """Reads that are under way together."""
    warps: int = 4


TUNING = Tuning()


@dataclass(frozen=True, slots=True)
class Facts:
    """What one read of some tensors has yielded, on their device."""

    norms: Tensor
    """2-norm of each tensor, float64."""
    total: Tensor
    """2-norm of all of them, float32, shape []."""
    zeros: Tensor
    """Elements of each tensor that are 0, int64."""
    table: Tensor
    """Columns norm, largest magnitude (NaN if there is one), share of zeros (1 where there is no element), elements not
    finite, and one that is left for how far a step goes: float64, [tensors, COLUMNS]."""
    exponents: Tensor | None
    """Elements by exponent, int64, [tensors, EXPONENTS]; None where it was not asked for."""


class OnePass:
    """Reads lists of tensors of one device. The same tensors give the same bits every time.

    Arguments:
        device: where the tensors are: a CUDA device, or the CPU under Triton's interpreter.
        tuning: how the work is divided.
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

    def read(self, tensors: Sequence[Tensor], *, exponents: bool = False) -> Facts | None:
        """Read some tensors, at least one; their order in memory does not matter.

        Returns:
            What was seen; None if the dtype of one is none of ``READABLE``.
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
        # Another table stands for one that is not asked for: it is not looked at.
        bins, together = self._partial[1], zeros
        if exponents:
            bins = torch.empty(chunks.count * EXPONENTS, dtype=torch.int32, device=device)
            together = torch.empty(count, EXPONENTS, dtype=torch.int64, device=device)
        addresses = self._addresses.table(list(map(Tensor.data_ptr, tensors)))
        with on_device(device):
            for span in chunks.spans:
                self._launch(
                    kernels.look_at_chunks, span.count,
                    addresses, chunks.sizes, chunks.owners, chunks.places, span.first, *self._partial, bins,
                    ELEMENT=kernels.ELEMENTS[span.dtype], BYTES=span.dtype.itemsize, CHUNK=tuning.chunk,
                    BLOCK=tuning.block, UNROLL=tuning.unroll, EXPONENT_BINS=exponents, warps=tuning.warps,
                )  # fmt: skip
            self._launch(
                kernels.fold_chunks, count,
                chunks.starts, chunks.sizes, *self._partial, bins, self._squares, norms, zeros, table, together,
                WIDTH=FOLD_WIDTH, COLUMNS=COLUMNS, EXPONENT_BINS=exponents,
            )  # fmt: skip
            self._launch(kernels.fold_tensors, 1, self._squares, total, count, WIDTH=TOTAL_WIDTH)
        return Facts(norms, total, zeros, table, together if exponents else None)

    @property
    def plan(self) -> object:
        """Another object as soon as tensors of other sizes or dtypes were read; None before the first."""
        return self._key

    def fork(self) -> OnePass:
        """Another reader of the same tensors, for a CUDA graph: what it holds is never given up or moved."""
        fork = copy.copy(self)
        fork._addresses = Addresses(self._chunks.tensors, self._device)
        return fork

    def _plan(self, tensors: Sequence[Tensor]) -> bool:
        # A gradient that is larger or of another dtype than the last must never be read by its table.
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
    """Whether the tensor fills a stretch of memory, in whatever order."""
    if tensor.is_contiguous():
        return True
    stretch = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != stretch:
                return False
            stretch *= size
    return True
