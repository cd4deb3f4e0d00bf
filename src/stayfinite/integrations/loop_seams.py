"""Hook points of a hand-written loop with a framework; filled in by each framework's file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Seams:
    """Hook points of a framework's loop."""

    owner: object
    """Object with ``backward`` and the clipping methods."""

    called: nn.Module
    """The model as the loop calls it."""

    clips: tuple[str, ...]
    """Names of its clipping methods."""

    log: str
    """Name of its method that logs a mapping of metrics."""

    loss: str
    """Name of the first argument of ``backward``."""

    metrics: str
    """Name of the first argument of the log method."""

    optimizer: Any
    """The optimizer that the loop steps."""

    raw: Optimizer
    """The torch optimizer inside."""

    scaler: GradScaler | None

    autocast: Callable[[], AbstractContextManager[Any]]
    """Autocast of the model."""

    bare: Callable[[], AbstractContextManager[Any]]
    """Context in which the caller controls the precision."""

    share: Callable[[], float]
    """Divisor of the loss in ``backward``."""

    steps_now: Callable[[], bool]
    """Whether ``optimizer.step`` will step, or continue accumulating."""

    tell_skipped: Callable[[bool], None]
    """Reports to the framework whether the step was skipped."""
