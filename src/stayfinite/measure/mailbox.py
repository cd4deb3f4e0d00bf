"""Asynchronous copies from the device to the host."""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

Label = TypeVar("Label")


class Letter(NamedTuple, Generic[Label]):
    """A delivered vector with its label."""

    label: Label
    values: list[float]


class _Sheet(NamedTuple):
    """Pinned memory for one vector, and the event of its arrival."""

    paper: Tensor
    arrived: torch.cuda.Event


class Mailbox(Generic[Label]):
    """A queue of asynchronous copies to pinned host memory, delivered in order."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Label, Tensor, _Sheet | None]] = deque()
        self._free: list[_Sheet] = []

    def __len__(self) -> int:
        return len(self._under_way)

    def post(self, label: Label, values: Tensor) -> None:
        """Start the copy of a float64 vector; does not wait."""
        if values.device.type != "cuda":
            self._under_way.append((label, values, None))
            return
        size = values.numel()
        sheet = self._sheet(size)
        letter = sheet.paper if sheet.paper.numel() == size else sheet.paper[:size]
        letter.copy_(values, non_blocking=True)
        sheet.arrived.record(torch.cuda.current_stream(values.device))
        self._under_way.append((label, letter, sheet))

    def collect(self, *, wait: bool = False, leave: int | None = None) -> list[Letter[Label]]:
        """Arrived vectors; with ``wait`` all posted ones; with ``leave`` exactly all but the last ``leave``."""
        arrived: list[Letter[Label]] = []
        while len(self._under_way) > (leave or 0):
            label, letter, sheet = self._under_way[0]
            if sheet is not None:
                if wait or leave is not None:
                    sheet.arrived.synchronize()
                elif not sheet.arrived.query():
                    break
            self._under_way.popleft()
            arrived.append(Letter(label, letter.tolist()))
            if sheet is not None:
                self._free.append(sheet)
        return arrived

    def _sheet(self, size: int) -> _Sheet:
        # Pinned memory is slow to allocate, so it is reused.
        for index, sheet in enumerate(self._free):
            if sheet.paper.numel() >= size:
                return self._free.pop(index)
        return _Sheet(torch.empty(size, dtype=torch.float64, pin_memory=True), torch.cuda.Event())
