"""Numbers on their way from the device to the host, read when they have arrived and not before."""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

Label = TypeVar("Label")


class Letter(NamedTuple, Generic[Label]):
    """What was posted, under the label it was posted with."""

    label: Label
    values: list[float]


class Mailbox(Generic[Label]):
    """A queue of asynchronous copies to pinned host memory, delivered in the order of posting."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Label, Tensor, torch.cuda.Event | None]] = deque()
        self._free: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._under_way)

    def post(self, label: Label, values: Tensor) -> None:
        """Send a float64 vector on its way. Does not wait."""
        if values.device.type != "cuda":
            self._under_way.append((label, values, None))
            return
        letter = self._sheet(values.numel())[: values.numel()]
        letter.copy_(values, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(values.device))
        self._under_way.append((label, letter, event))

    def collect(self, *, wait: bool = False, leave: int | None = None) -> list[Letter[Label]]:
        """All that has arrived; with ``wait`` all that was posted; with ``leave`` exactly all but the last so many."""
        arrived: list[Letter[Label]] = []
        while len(self._under_way) > (leave or 0):
            label, sheet, event = self._under_way[0]
            if event is not None:
                if wait or leave is not None:
                    event.synchronize()
                elif not event.query():
                    break
            self._under_way.popleft()
            arrived.append(Letter(label, sheet.tolist()))
            if event is not None:
                self._free.append(sheet._base if sheet._base is not None else sheet)
        return arrived

    def _sheet(self, size: int) -> Tensor:
        # Pinned memory is slow to get, so sheets are used again.
        for index, sheet in enumerate(self._free):
            if sheet.numel() >= size:
                return self._free.pop(index)
        return torch.empty(size, dtype=torch.float64, pin_memory=True)
