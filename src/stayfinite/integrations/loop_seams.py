"""Where a hand-written loop that uses a framework is met; each framework's own file fills it in."""

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
    """Where a framework's loop is met."""

    owner: object
    """The framework's object that has ``backward`` and the methods that clip."""

    called: nn.Module
    """The model as the loop calls it."""

    clips: tuple[str, ...]
    """Names of its methods that clip gradients."""

    log: str
    """Name of its method that takes a mapping of metrics."""

    loss: str
    """Name of the first argument of ``backward``."""

    metrics: str
    """Name of the first argument of the method that logs."""

    optimizer: Any
    """The optimizer that the loop steps."""

    raw: Optimizer
    """torch's, inside of it."""

    scaler: GradScaler | None

    autocast: Callable[[], AbstractContextManager[Any]]
    """What the model runs in."""

    bare: Callable[[], AbstractContextManager[Any]]
    """Within, the model leaves precision to whoever calls it."""

    share: Callable[[], float]
    """What ``backward`` divides the loss by."""

    steps_now: Callable[[], bool]
    """Whether ``optimizer.step`` will step, or go on gathering gradients."""

    tell_skipped: Callable[[bool], None]
    """Tell the framework whether the step was skipped."""
