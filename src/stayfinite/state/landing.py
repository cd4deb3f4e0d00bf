"""Copy a training state from its devices to the host.

From CUDA it runs on its own stream into pinned memory while training continues. What may change at any time (buffers,
averaged weights) is copied first, and the device waits for it; parameters and moments change only in the optimizer's
step, so the device waits for their copy just before it.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stayfinite.state.host import HostMemory


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
