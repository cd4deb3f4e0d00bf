"""A piece of a file in memory: mapped if safe, else read. Memory is released afterwards.

Mapping saves a copy, but touching an unavailable page (file truncated meanwhile, failing disk) kills the process. All
pages of a piece are therefore populated first, which returns an error instead. Without support for that, pieces are
read.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

PIECE = 8 << 20  # bytes processed together: enough to make Python's overhead small

RELEASED_AFTER = 128 << 20
"""Bytes kept mapped behind the pieces in use: unmapping each one alone costs as much as processing it."""

_POPULATE_READ = 22  # MADV_POPULATE_READ of Linux 5.14, which Python does not define


class Windows:
    """The pieces of one open file, usable from several threads."""

    def __init__(self, descriptor: int, *, may_map: bool = True) -> None:
        self._descriptor = descriptor
        self._local = threading.local()
        self._lock = threading.Lock()
        self._released = 0
        self._memory: mmap.mmap | None = None
        self._whole: Tensor | None = None
        if may_map and sys.platform == "linux":
            self._map()

    @contextmanager
    def open(self, offset: int, length: int) -> Iterator[Tensor]:
        """The bytes of a piece, valid only inside the ``with`` block. Raises OSError if the disk fails or the file
        shrank.
        """
        memory, whole = self._memory, self._whole
        if memory is None or whole is None:
            yield self._read(offset, length)
            return
        start = offset - offset % mmap.PAGESIZE
        try:
            memory.madvise(_POPULATE_READ, start, offset + length - start)
        except OSError as error:
            text = "disk read failed, or the file was shortened meanwhile"
            raise OSError(errno.EIO, text) from error
        yield whole[offset : offset + length]
        self._release_before(memory, start)

    def _release_before(self, memory: mmap.mmap, end: int) -> None:
        """Unmap earlier pages, which count as memory of this process.

        A page that another thread still uses is mapped again.
        """
        with self._lock:
            start = self._released
            if end - start < RELEASED_AFTER:
                return
            self._released = end
        memory.madvise(mmap.MADV_DONTNEED, start, end - start)

    def _map(self) -> None:
        try:
            memory = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
            memory.madvise(_POPULATE_READ, 0, 1)
        except (OSError, ValueError):
            return
        with warnings.catch_warnings():
            # torch warns that the buffer is read-only, which is intended.
            warnings.simplefilter("ignore")
            self._whole = torch.frombuffer(memory, dtype=torch.uint8)
        self._memory = memory

    def _read(self, offset: int, length: int) -> Tensor:
        raw: bytearray | None = getattr(self._local, "raw", None)
        if raw is None or len(raw) < length:
            raw = self._local.raw = bytearray(max(length, PIECE))
            self._local.tensor = torch.frombuffer(raw, dtype=torch.uint8)
        view, done = memoryview(raw)[:length], 0
        while done < length:
            count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if not count:
                raise OSError(errno.EIO, "the file was shortened while it was read")
            done += count
        whole: Tensor = self._local.tensor
        return whole[:length]
