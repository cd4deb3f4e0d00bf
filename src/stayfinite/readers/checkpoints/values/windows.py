"""A piece of a file in memory: mapped where that is safe, read where it is not. Nothing stays behind afterwards.

Mapping spares a copy. But a page that cannot be had (a file cut off meanwhile, a failing disk) kills a process that
touches it; so all pages of a piece are asked for first, which is answered with an error instead. Where the system has
no such question, pieces are read.
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

PIECE = 8 << 20
"""Bytes that are looked at together: enough to make Python's part small."""

RELEASED_AFTER = 128 << 20
"""Bytes that stay mapped behind the pieces in use: giving each back by itself takes as long as looking at it."""

_POPULATE_READ = 22
"""Linux 5.14's MADV_POPULATE_READ, which Python does not name."""


class Windows:
    """The pieces of one open file, for any number of threads."""

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
        """The bytes of a piece, valid within the ``with`` only.

        Raises:
            OSError: they cannot be had: the file has become shorter, or its disk fails.
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
        """Give back what lies before: pages count as this process's memory as long as they are mapped.

        Where another thread still looks at one of them, it is simply mapped again.
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
            # That it cannot be written to is as it should be.
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
