"""A program's own lines: loss, learning rate and speed, every so many steps. The guard writes its own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Logbook:
    """Counts steps, averages losses without waiting for the device, and speaks now and then.

    Arguments:
        say: takes a line.
        steps: of the whole training; None where nobody knows.
        every: steps between lines.
        unit: what is counted for the speed.
    """

    def __init__(self, say: Callable[[str], None], *, steps: int | None, every: int, unit: str = "tokens") -> None:
        self._say = say
        self._steps = steps
        self._every = max(1, every)
        self._unit = unit
        self._losses: list[Tensor] = []
        self._tokens: list[Tensor | int] = []
        self._since = time.monotonic()
        self._seconds = 0.0
        self._all_tokens = 0
        self._silent = True
        self.steps_taken = 0
        self.first = float("nan")
        self.last = float("nan")

    def resume(self, step: int) -> None:
        """So many steps were taken by an earlier process."""
        self.steps_taken = step

    def add(self, loss: Tensor, amount: Tensor | int) -> None:
        """A batch was computed, with so many units in it, padding not counted."""
        self._losses.append(loss.detach())
        self._tokens.append(amount)

    def step(self, lr: float | Tensor) -> None:
        """A step was taken or refused."""
        self.steps_taken += 1
        if self._silent or not self.steps_taken % self._every:
            self._speak(lr)

    def finish(self) -> None:
        """The last steps count too, though nothing is said of them."""
        self._take()

    def _speak(self, lr: float | Tensor) -> None:
        speed = self._take()
        self._silent = False
        of = "" if self._steps is None else f" of {self._steps}"
        self._say(
            f"step {self.steps_taken:>6}{of}  loss {self.last:8.4f}  lr {float(lr):.2e}  {speed:,.0f} {self._unit}/s"
        )

    def _take(self) -> float:
        """Average what was added since the last time; returns the speed."""
        if not self._losses:
            return 0.0
        losses = torch.stack([loss.float() for loss in self._losses]).cpu()
        finite = losses[losses.isfinite()]
        self.last = float(finite.mean()) if len(finite) else float("nan")
        tokens = int(sum(int(count) for count in self._tokens))
        elapsed = time.monotonic() - self._since
        if not math.isfinite(self.first):
            self.first = self.last
        if not self._silent:
            # What a first step takes is mostly set-up, so it does not count for the speed.
            self._seconds, self._all_tokens = self._seconds + elapsed, self._all_tokens + tokens
        self._losses, self._tokens, self._since = [], [], time.monotonic()
        return tokens / max(elapsed, 1e-9)

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Within, something else is done than training: the time does not count for the speed."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._since += time.monotonic() - began

    @property
    def rate(self) -> float:
        """Units a second, padding not counted."""
        return self._all_tokens / max(self._seconds, 1e-9)
