"""Restore buffers that the forward pass changed, if the step is refused or shows a fault.

A NaN batch corrupts BatchNorm's running statistics before any loss is known, and they never recover. The guard
therefore keeps copies from the last accepted step: of buffers in layers with running statistics, of all small buffers,
and of a large one (an averaged codebook) once it changes.

What the loop itself writes between two steps (a temperature, loaded statistics) belongs to the training: it enters the
copy when a forward pass starts.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from stayfinite.state.parts import holding

SMALL = 65_536
"""Buffers up to this many elements are copied in advance; larger ones are mostly constant tables (masks)."""

Key = tuple[nn.Module, str]


class RunningBuffers:
    """The model's changing buffers, as of the last accepted step."""

    def __init__(self, model: nn.Module) -> None:
        self._kept: dict[Key, Tensor] = {}
        self._noted: dict[Key, tuple[Tensor, int]] = {}
        self._changing: set[Key] = set()
        self._under_way = False
        """Whether a forward pass of the next step has started."""
        self._large: list[Key] = []
        """Buffers without a copy because they have never changed."""
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
        """Accept what was written to buffers since the last step; call it before a forward pass."""
        if self._under_way or not torch.is_grad_enabled():
            return
        self._under_way = True
        with torch.no_grad():
            for key, buffer in self._changed(known=False):
                self._kept[key].copy_(buffer)
                self._noted[key] = (buffer, buffer._version)

    @torch.no_grad()
    def keep(self) -> None:
        """Accept the current buffers, after an accepted step."""
        self._under_way = False
        for key, buffer in self._changed():
            self._kept[key].copy_(buffer)
            self._noted[key] = (buffer, buffer._version)
        self._take_up_large()

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the buffers, after a refused step."""
        self._under_way = False
        for key, buffer in self._changed():
            buffer.copy_(self._kept[key])
            self._noted[key] = (buffer, buffer._version)

    def as_kept(self) -> AbstractContextManager[None]:
        """Context with the buffers of the last accepted step."""
        return holding((buffer, self._kept[key]) for key, buffer in self._changed())

    @torch.no_grad()
    def settle(self, restore: Callable[[], Tensor]) -> None:
        """Keep or restore according to a device flag, without a sync; the flag is read only if a buffer changed."""
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
        """Buffers that were written to; ``known`` adds those of layers with running statistics, whose kernels may not
        bump the version.
        """
        for key, kept in self._kept.items():
            module, name = key
            buffer = module._buffers.get(name)
            if buffer is None or buffer.is_inference():
                continue
            if buffer.shape != kept.shape or buffer.dtype != kept.dtype or buffer.device != kept.device:
                # Replaced or moved by its owner: the copy no longer belongs to it.
                self._kept[key] = buffer.detach().clone()
                self._noted[key] = (buffer, buffer._version)
            elif (known and key in self._changing) or self._has_changed(key):
                yield key, buffer
