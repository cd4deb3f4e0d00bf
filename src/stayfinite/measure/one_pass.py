"""All that is to be known of the gradients, in one read of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from stayfinite.measure.tables import Addresses, Chunks, cut

READABLE = frozenset({torch.float32, torch.bfloat16, torch.float16})
"""Dtypes that the kernels read."""

EXPONENTS = 256
"""Bins of the histogram: one for each exponent of a float32; 0 holds zeros and subnormal numbers, 255 what is not
finite, and bin b the magnitudes from 2 ** (b - 127) up to the next power of two."""

FOLD_WIDTH, TOTAL_WIDTH = 128, 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """How the work is divided. The result depends on it in the last bit, so it is the same everywhere."""

    chunk: int = 32_768
    """Elements that one program reads."""
    block: int = 2048
    """Elements that it reads at a time."""
    unroll: int = 4
    """Reads that are under way together."""
    warps: int = 8


TUNING = Tuning()


@dataclass(frozen=True, slots=True)
class Facts:
    """What one read of some tensors has yielded, on their device."""

    norms: Tensor
    """2-norm of each tensor, float32."""
    total: Tensor
    """2-norm of all of them, float32, shape []."""
    table: Tensor
    """Rows norm, largest magnitude (NaN if there is one), zeros, elements not finite: float64, [4, tensors]."""
    sizes: Tensor
    """Elements of each tensor, int64."""
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
        self._key: tuple[list[int], list[torch.dtype]] | None = None
        self._chunks: Chunks
        self._addresses: Addresses
        self._partial: tuple[Tensor, Tensor, Tensor, Tensor]

    def read(self, tensors: Sequence[Tensor], *, exponents: bool = False) -> Facts:
        """Read dense tensors of ``READABLE`` dtypes, at least one; their order in memory does not matter."""
        from stayfinite.measure import kernels

        tensors = [tensor if is_dense(tensor) else tensor.contiguous() for tensor in tensors]
        self._plan(tensors)
        chunks, tuning, device = self._chunks, self._tuning, self._device
        count = chunks.tensors
        norms = torch.empty(count, dtype=torch.float32, device=device)
        total = torch.empty((), dtype=torch.float32, device=device)
        table = torch.empty(4, count, dtype=torch.float64, device=device)
        squares = torch.empty(count, dtype=torch.float64, device=device)
        # A table of one number stands for one that is not asked for.
        wide = (chunks.count, count) if exponents else (0, 0)
        bins = torch.empty(wide[0] * EXPONENTS or 1, dtype=torch.int32, device=device)
        together = torch.empty(wide[1] * EXPONENTS or 1, dtype=torch.int64, device=device)
        addresses = self._addresses.of(tensors)
        with on_device(device):
            for span in chunks.spans:
                kernels.look_at_chunks[(span.count,)](
                    addresses, chunks.sizes, chunks.owners, chunks.places, span.first, *self._partial, bins,
                    ELEMENT=kernels.ELEMENTS[span.dtype], BYTES=span.dtype.itemsize, CHUNK=tuning.chunk,
                    BLOCK=tuning.block, UNROLL=tuning.unroll, EXPONENT_BINS=exponents, num_warps=tuning.warps,
                )  # fmt: skip
            kernels.fold_chunks[(count,)](
                chunks.starts, *self._partial, bins, squares, norms, table, together, count,
                WIDTH=FOLD_WIDTH, EXPONENT_BINS=exponents, num_warps=4,
            )  # fmt: skip
            kernels.fold_tensors[(1,)](squares, total, count, WIDTH=TOTAL_WIDTH, num_warps=4)
        return Facts(norms, total, table, chunks.sizes, together.view(count, EXPONENTS) if exponents else None)

    def fork(self) -> OnePass:
        """Another reader of the same tensors, for a CUDA graph: what it holds is never given up or moved."""
        fork = copy.copy(self)
        fork._addresses = Addresses(self._chunks.tensors, self._device)
        return fork

    def _plan(self, tensors: Sequence[Tensor]) -> None:
        key = ([tensor.numel() for tensor in tensors], [tensor.dtype for tensor in tensors])
        if key == self._key:
            return
        self._chunks = cut(*key, self._tuning.chunk, self._device)
        self._addresses = Addresses(len(tensors), self._device)
        self._partial = (
            torch.empty(self._chunks.count, dtype=torch.float32, device=self._device),
            torch.empty(self._chunks.count, dtype=torch.int32, device=self._device),
            torch.empty(self._chunks.count, dtype=torch.int32, device=self._device),
            torch.empty(self._chunks.count, dtype=torch.int32, device=self._device),
        )
        self._key = key


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


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Within, kernels are launched there."""
    if device.type != "cuda" or device.index in (None, torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.device(device)
