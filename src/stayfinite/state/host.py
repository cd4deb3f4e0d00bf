"""Host memory for one copy of a training state, reused from copy to copy."""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 64
PORTABLE = 1  # cudaHostRegisterPortable: pinned for every device


class HostMemory:
    """One block of host memory for the tensors of one copy. Grows as needed, never shrinks."""

    def __init__(self) -> None:
        self._block = torch.empty(0, dtype=torch.uint8)
        self._layout: list[tuple[str, torch.Size, torch.dtype]] = []
        self._views: dict[str, Tensor] = {}
        self._holds = 0
        self._free = threading.Condition()
        self._unpin: Any = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._block.numel()

    @property
    def held(self) -> bool:
        """Whether it is still being read and must not be overwritten."""
        with self._free:
            return self._holds > 0

    def hold(self) -> None:
        """Prevent reuse until ``release``."""
        with self._free:
            self._holds += 1

    def release(self) -> None:
        """Undo one ``hold``."""
        with self._free:
            assert self._holds > 0, "released more often than held"
            self._holds -= 1
            self._free.notify_all()

    def wait_free(self) -> None:
        """Wait until there are no more holds."""
        with self._free:
            self._free.wait_for(lambda: self._holds == 0)

    def views(self, live: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A view into the block for each tensor; overwrites the previous ones."""
        assert not self.held, "host memory is reused while it is read"
        layout = [(name, tensor.shape, tensor.dtype) for name, tensor in live.items()]
        if layout == self._layout:
            return dict(self._views)
        spans, end = [], 0
        for tensor in live.values():
            spans.append((end, tensor.numel() * tensor.element_size()))
            end = math.ceil((end + spans[-1][1]) / ALIGNMENT) * ALIGNMENT
        if end > self._block.numel():
            self._allocate(end, pinned=any(tensor.is_cuda for tensor in live.values()))
        self._views = {
            name: self._block[start : start + size].view(tensor.dtype).view(tensor.shape)
            for (name, tensor), (start, size) in zip(live.items(), spans, strict=True)
        }
        self._layout = layout
        return dict(self._views)

    def _allocate(self, size: int, *, pinned: bool) -> None:
        # Free the old block first: both may not fit in memory.
        self._views, self._layout = {}, []
        if self._unpin is not None:
            self._unpin()
            self._unpin = None
        self._block = torch.empty(0, dtype=torch.uint8)
        self._block = torch.empty(size, dtype=torch.uint8)
        if pinned:
            # torch rounds pinned memory up to a power of two, which can double it.
            cudart = torch.cuda.cudart()
            if int(cudart.cudaHostRegister(self._block.data_ptr(), size, PORTABLE)) == 0:
                self._unpin = weakref.finalize(self, _unpin, self._block)


def _unpin(block: Tensor) -> None:
    with contextlib.suppress(RuntimeError):
        torch.cuda.cudart().cudaHostUnregister(block.data_ptr())
