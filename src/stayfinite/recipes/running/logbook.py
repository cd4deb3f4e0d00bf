"""A program's own lines: loss, learning rate and speed, every so many steps. What matters to the guard it writes itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor


class Logbook:
    """Counts steps, averages losses without waiting for the device, and speaks now and then."""

    def __init__(self, say: Callable[[str], None], *, steps: int, every: int) -> None:
        self._say = say
        self._steps = steps
        self._every = max(1, every)
        self._losses: list[Tensor] = []
        self._tokens: list[Tensor] = []
        self._since = time.monotonic()
        self._seconds = 0.0
        self._all_tokens = 0
        self.steps_taken = 0
        self.first = float("nan")
        self.last = float("nan")

    def add(self, loss: Tensor, batch: Mapping[str, Tensor]) -> None:
        """A batch was computed."""
        self._losses.append(loss)
        if "attention_mask" in batch:
            self._tokens.append(batch["attention_mask"].sum() + (batch["labels"] >= 0).sum())

    def step(self, lr: float) -> None:
        """A step was taken or refused."""
        self.steps_taken += 1
        if self.steps_taken % self._every and self.steps_taken != 1:
            return
        losses = torch.stack([loss.float() for loss in self._losses]).cpu()
        finite = losses[losses.isfinite()]
        mean = float(finite.mean()) if len(finite) else float("nan")
        tokens = int(sum(int(count) for count in self._tokens))
        elapsed = time.monotonic() - self._since
        self._seconds, self._all_tokens = self._seconds + elapsed, self._all_tokens + tokens
        if self.steps_taken == 1:
            self.first = mean
        self.last = mean
        self._say(
            f"step {self.steps_taken:>6} of {self._steps}  loss {mean:8.4f}  lr {lr:.2e}  "
            f"{tokens / max(elapsed, 1e-9):,.0f} tokens/s"
        )
        self._losses, self._tokens, self._since = [], [], time.monotonic()

    @property
    def rate(self) -> float:
        """Tokens a second, padding not counted."""
        return self._all_tokens / max(self._seconds, 1e-9)
