"""Copy a training state from its devices to the host.

From CUDA it runs on its own stream into pinned memory while training continues. What may change at any time (buffers,
averaged weights) is copied first, and the device waits for it; parameters and moments change only in the optimizer's
step, so the device waits for their copy just before it.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

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


class Landing:
    """A copy in progress."""

    def __init__(self) -> None:
        self._arrived: list[tuple[torch.cuda.Event, torch.device]] = []
        self._stalls: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @property
    def arrived(self) -> bool:
        """Whether all of it is on the host."""
        return all(event.query() for event, _ in self._arrived)

    def wait(self) -> None:
        """Wait until all of it is on the host."""
        for event, _ in self._arrived:
            event.synchronize()

    def hold_device(self) -> None:
        """Make further work on the devices wait for the copy."""
        for event, device in self._arrived:
            self._stall(event, device)

    def stalled(self) -> float:
        """Seconds that the devices waited for the copy, as far as known."""
        known = [float(before.elapsed_time(after)) for before, after in self._stalls if after.query()]
        return sum(known) / 1000

    def _stall(self, event: torch.cuda.Event, device: torch.device) -> None:
        stream = torch.cuda.current_stream(device)
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record(stream)
        stream.wait_event(event)
        after.record(stream)
        self._stalls.append((before, after))


@torch.no_grad()
def bring_home(
    live: Mapping[str, Tensor], memory: HostMemory, *, first: Collection[str] = ()
) -> tuple[dict[str, Tensor], Landing]:
    """Copy tensors to the host: synchronously from the CPU, asynchronously from CUDA.

    Arguments:
        first: names of tensors that may change before the next optimizer step.
    """
    landing = Landing()
    views = memory.views(live)
    by_device: dict[torch.device, list[str]] = {}
    for name, tensor in live.items():
        by_device.setdefault(tensor.device, []).append(name)
    for device, names in by_device.items():
        if device.type != "cuda":
            for name in names:
                views[name].copy_(live[name])
            continue
        ahead, rest = [n for n in names if n in first], [n for n in names if n not in first]
        stream = _side_stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        for part in (ahead, rest):
            with torch.cuda.stream(stream):
                for name in part:
                    views[name].copy_(live[name], non_blocking=True)
                    live[name].record_stream(stream)
            event = torch.cuda.Event()
            event.record(stream)
            landing._arrived.append((event, device))
            if part is ahead and ahead:
                landing._stall(event, device)
    return views, landing


_waiting: weakref.WeakKeyDictionary[Optimizer, list[Landing]] = weakref.WeakKeyDictionary()


def hold_before_step(optimizer: Optimizer, landing: Landing) -> None:
    """Let the device finish the copy just before this optimizer's next step."""
    if landing.arrived:
        return
    if optimizer not in _waiting:
        try:
            optimizer.register_step_pre_hook(_before_step)
        except AttributeError:
            # Not a real optimizer: make the device wait now.
            landing.hold_device()
            return
        _waiting[optimizer] = []
    _waiting[optimizer].append(landing)


def settle(optimizer: Optimizer) -> None:
    """Make further work on the devices wait for all copies in progress."""
    _before_step(optimizer)


def _before_step(optimizer: Optimizer, *_: Any) -> None:
    for landing in _waiting.get(optimizer, ()):
        landing.hold_device()
    if optimizer in _waiting:
        _waiting[optimizer].clear()


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]
