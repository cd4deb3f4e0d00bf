"""Buffers that the forward pass itself changes, put back when the step is refused or shows a fault.

A batch with a NaN in it has spoilt BatchNorm's running statistics before any loss is known, and they never recover.
So the guard keeps a copy of such buffers from the last accepted step: those of layers that track running statistics,
every other small buffer, and a large one (a codebook that moves by averages) from the first time it is seen to change.
What the loop itself writes to a buffer between two steps (a temperature, loaded statistics) belongs to the training:
where the guard sees a forward pass begin, it is taken into the copy first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

SMALL = 65_536
"""Elements up to which a buffer is kept in case it changes; most larger ones are tables (masks) that never do."""

Key = tuple[nn.Module, str]


class RunningBuffers:
    """The model's changing buffers and how they were after the last accepted step."""

    def __init__(self, model: nn.Module) -> None:
        self._kept: dict[Key, Tensor] = {}
        self._noted: dict[Key, tuple[Tensor, int]] = {}
        self._changing: set[Key] = set()
        self._under_way = False
        """Whether a forward pass of the coming step has begun."""
        self._large: list[Key] = []
        """Buffers of which no copy is held, because they have never changed."""
        for module in model.modules():
            running = bool(getattr(module, "track_running_stats", False))
            for name, buffer in module._buffers.items():
                if buffer is None or buffer.is_inference():
                    continue
                key = (module, name)
                self._noted[key] = (buffer, buffer._version)
                if not (running or buffer.numel() <= SMALL):
                    self._large.append(key)
                    continue
                self._kept[key] = buffer.detach().clone()
                if running:
                    self._changing.add(key)

    def begin(self) -> None:
        """A forward pass is about to run: what was written to a buffer since the last step is no doing of the pass."""
        if self._under_way or not torch.is_grad_enabled():
            return
        self._under_way = True
        with torch.no_grad():
            for key, buffer in self._changed(known=False):
                self._kept[key].copy_(buffer)
                self._noted[key] = (buffer, buffer._version)

    @torch.no_grad()
    def keep(self) -> None:
        """The step was accepted: what the buffers are now is what they are to be."""
        self._under_way = False
        for key, buffer in self._changed():
            self._kept[key].copy_(buffer)
            self._noted[key] = (buffer, buffer._version)
        self._take_up_large()

    @torch.no_grad()
    def restore(self) -> None:
        """The step was refused: the buffers are what they were."""
        self._under_way = False
        for key, buffer in self._changed():
            buffer.copy_(self._kept[key])
            self._noted[key] = (buffer, buffer._version)

    @contextmanager
    def as_kept(self) -> Iterator[None]:
        """Within, the buffers are what they were after the last step that was kept."""
        with torch.no_grad():
            present = [(key, buffer, buffer.clone()) for key, buffer in self._changed()]
            for key, buffer, _ in present:
                buffer.copy_(self._kept[key])
        try:
            yield
        finally:
            with torch.no_grad():
                for _, buffer, value in present:
                    buffer.copy_(value)

    @torch.no_grad()
    def settle(self, restore: Callable[[], Tensor]) -> None:
        """Keep or restore, as a flag on the device says, without waiting for it; asked for only if there is any."""
        self._under_way = False
        alike: dict[tuple[torch.device, torch.dtype], list[tuple[Key, Tensor]]] = {}
        for key, buffer in self._changed():
            alike.setdefault((buffer.device, buffer.dtype), []).append((key, buffer))
        for (device, _), pairs in alike.items():
            buffers = [buffer for _, buffer in pairs]
            kept = [self._kept[key] for key, _ in pairs]
            now, before = (torch.cat([each.reshape(-1) for each in side]) for side in (buffers, kept))
            chosen = torch.where(restore().to(device, torch.bool, non_blocking=True), before, now)
            pieces = chosen.split([buffer.numel() for buffer in buffers])
            shaped = [piece.view(buffer.shape) for piece, buffer in zip(pieces, buffers, strict=True)]
            torch._foreach_copy_(buffers, shaped)
            torch._foreach_copy_(kept, shaped)
            for key, buffer in pairs:
                self._noted[key] = (buffer, buffer._version)
        self._take_up_large()

    def _take_up_large(self) -> None:
        for key in [key for key in self._large if self._has_changed(key)]:
            module, name = key
            if (buffer := module._buffers.get(name)) is not None:
                self._large.remove(key)
                self._kept[key] = buffer.detach().clone()
                self._noted[key] = (buffer, buffer._version)

    def _has_changed(self, key: Key) -> bool:
        module, name = key
        buffer = module._buffers.get(name)
        if buffer is None or buffer.is_inference():
            return False
        noted, version = self._noted[key]
        return noted is not buffer or version != buffer._version

    def _changed(self, *, known: bool = True) -> Iterator[tuple[Key, Tensor]]:
        """Buffers that were written to, with those that are known to change: their kernels may not tell of it."""
        for key, kept in self._kept.items():
            module, name = key
            buffer = module._buffers.get(name)
            if buffer is None or buffer.is_inference():
                continue
            if buffer.shape != kept.shape or buffer.dtype != kept.dtype or buffer.device != kept.device:
                # Replaced or moved by its owner: what was kept no longer belongs to it.
                self._kept[key] = buffer.detach().clone()
                self._noted[key] = (buffer, buffer._version)
            elif (known and key in self._changing) or self._has_changed(key):
                yield key, buffer
