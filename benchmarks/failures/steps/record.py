"""A short training, in nobody's framework, and what is on record about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.failures.cases import Case


@dataclass(kw_only=True)
class Training:
    """A model, an optimizer, a few batches; one of them, or the state, may be bad."""

    model: nn.Module
    forward: Callable[[Any], Tensor]
    """From a batch to its loss."""
    batches: Sequence[Any]
    optimizer: torch.optim.Optimizer
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    scale: float = 1.0
    """The loss scale to begin with; 1 for none."""

    def loss(self, batch: Any) -> Tensor:
        """The loss of a batch, under autocast."""
        with self.autocast():
            return self.forward(batch)

    def run(self) -> None:
        """The loop as everybody writes it."""
        scaler = torch.amp.GradScaler("cpu", init_scale=self.scale, enabled=self.scale != 1.0)
        for batch in self.batches:
            self.optimizer.zero_grad()
            scaler.scale(self.loss(batch)).backward()
            scaler.step(self.optimizer)
            scaler.update()


@dataclass(frozen=True, kw_only=True)
class StepCase(Case):
    """A short training by name."""

    build: Callable[[], Training]


Builder = Callable[[], Training]
FAULTS: list[tuple[Builder, tuple[str, ...]]] = []
LOOK_ALIKES: list[Builder] = []


def fault(*causes: str) -> Callable[[Builder], Builder]:
    """Put a bad training on the list, with the causes that name it rightly."""

    def enter(build: Builder) -> Builder:
        FAULTS.append((build, causes))
        return build

    return enter


def look_alike(build: Builder) -> Builder:
    """Put a healthy training on the list."""
    LOOK_ALIKES.append(build)
    return build
