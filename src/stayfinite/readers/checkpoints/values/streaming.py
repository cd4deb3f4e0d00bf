"""Stream all tensors of many files through all cores, a few megabytes at a time.

A piece is mapped if safe, else read, and its memory released afterwards. Mapping saves a copy, but touching an
unavailable page (file truncated meanwhile, failing disk) kills the process. All pages of a piece are therefore
populated first, which returns an error instead. Without support for that, pieces are read.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from stayfinite.readers.checkpoints.facts import BYTES, FLOATS, FileFacts, Place, TensorValues
from stayfinite.readers.checkpoints.formats.opening import open_regular
from stayfinite.readers.checkpoints.values.statistics import CHECKED, Tally, tally, values_of
from stayfinite.readers.malformed import Malformed

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


MOST_THREADS = 16  # more threads only wait for the GIL

OnBytes = Callable[[int], object]


class _Slice(NamedTuple):
    """Part of a tensor."""

    place: Place
    begin: int
    end: int
    """In bytes of the tensor."""


class _Unit(NamedTuple):
    """Adjacent slices of a file, processed together."""

    start: int
    end: int
    slices: list[_Slice]


@dataclass(slots=True)
class _Reading:
    """An open file being processed."""

    facts: FileFacts
    windows: Windows
    tallies: dict[tuple[int, int, str, tuple[int, ...] | None], Tally] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failed: str = ""


def readable(facts: FileFacts) -> list[Place]:
    """Places whose values can be read, each region once."""
    regions = {_key(place): place for place in facts.places if place.nbytes and place.dtype in BYTES}
    return sorted(regions.values(), key=lambda place: place.offset)


def look_at(files: Sequence[FileFacts], on_bytes: OnBytes = id) -> list[list[TensorValues | None]]:
    """Return the values of every tensor, in the order of the places; None if unreadable.

    A file that is truncated or whose tensors overlap gets a problem in its facts. ``on_bytes`` is called from several
    threads with the bytes just processed.
    """
    threads_before = torch.get_num_threads()
    found: list[list[TensorValues | None]] = []
    try:
        # One file at a time: reading many at once would make a disk seek.
        found.extend(_look_at_one(facts, on_bytes) for facts in files)
    finally:
        torch.set_num_threads(threads_before)
    return found


def _look_at_one(facts: FileFacts, on_bytes: OnBytes) -> list[TensorValues | None]:
    nothing: list[TensorValues | None] = [None] * len(facts.places)
    places = readable(facts)
    packed = {
        place.dtype for place in facts.places if place.dtype not in BYTES or place.dtype in FLOATS - CHECKED.keys()
    }
    if packed:
        facts.complain("note", f"its tensors in {', '.join(sorted(packed))} were not checked")
    if not places:
        return nothing
    if sum(place.nbytes for place in places) > 4 * facts.size:
        facts.complain("unread", "its tensors overlap many times; not checked")
        return nothing
    try:
        with open_regular(facts.path) as file:
            reading = _Reading(facts=facts, windows=Windows(file.fileno()))
            _run(reading, list(_units(places)), on_bytes)
    except (OSError, Malformed) as error:
        facts.complain("unreadable", f"cannot read it: {getattr(error, 'strerror', None) or error}")
        return nothing
    if reading.failed:
        facts.complain("unreadable", reading.failed)
        return nothing
    done = reading.tallies
    return [values_of(place, done[_key(place)]) if _key(place) in done else None for place in facts.places]


def _run(reading: _Reading, units: list[_Unit], on_bytes: OnBytes) -> None:
    queue, turn, stop = iter(units), threading.Lock(), threading.Event()

    def work() -> None:
        torch.set_num_threads(1)
        while not stop.is_set():
            with turn:
                unit = next(queue, None)
            if unit is None:
                return
            try:
                _look_at_unit(reading, unit)
            except OSError as error:
                reading.failed = f"cannot read it to the end: {error.strerror or error}"
                stop.set()
            except BaseException as error:
                reading.failed = f"cannot check it: {type(error).__name__}: {error}"
                stop.set()
            on_bytes(unit.end - unit.start)

    count = min(_cores(), MOST_THREADS, max(1, len(units)))
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.set()


def _look_at_unit(reading: _Reading, unit: _Unit) -> None:
    with reading.windows.open(unit.start, unit.end - unit.start) as data:
        for place, begin, end in unit.slices:
            at = place.offset + begin - unit.start
            piece = data[at : at + end - begin]
            if piece.storage_offset() % 8 or piece.data_ptr() % 8:
                piece = piece.clone()
            found = tally(place, piece, begin)
            with reading.lock:
                reading.tallies.setdefault(_key(place), Tally()).add(found)


def _units(places: list[Place]) -> Iterator[_Unit]:
    """Group adjacent tensor slices into units of at most one piece."""
    slices: list[_Slice] = []
    start = end = 0
    for each in _slices(places):
        first, last = each.place.offset + each.begin, each.place.offset + each.end
        if slices and (max(end, last) - start > PIECE or first - end > PIECE // 8):
            yield _Unit(start, end, slices)
            slices = []
        if not slices:
            start = end = first
        slices.append(each)
        end = max(end, last)
    if slices:
        yield _Unit(start, end, slices)


def _slices(places: list[Place]) -> Iterator[_Slice]:
    for place in places:
        for begin in range(0, place.nbytes, PIECE):
            yield _Slice(place, begin, min(begin + PIECE, place.nbytes))


def _key(place: Place) -> tuple[int, int, str, tuple[int, ...] | None]:
    return place.offset, place.nbytes, place.dtype, place.stride


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
