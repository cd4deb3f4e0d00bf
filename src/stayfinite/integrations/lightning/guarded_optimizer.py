"""One optimizer of a LightningModule: its step and clipping."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stayfinite.errors import OrderError
from stayfinite.guard.driven import DrivenGuard
from stayfinite.integrations.framework_guard import warn_of_unseen_loss


class GuardedOptimizer:
    """One optimizer of a LightningModule and its guard."""

    def __init__(self, guard: DrivenGuard, optimizer: Optimizer) -> None:
        self.guard, self.optimizer = guard, optimizer
        self.refused = False
        self.vetoes = 0
        self.norm = math.nan
        self.open = False
        """Whether a step was judged but not settled yet."""
        self.early = False
        """Whether it was judged early, before manual clipping: the step itself is still to come."""
        self.again = False
        """Whether a bad step is being run again, and must not step."""
        self._gathered = False
        self._looked_at: list[int] = []

    def gather(self, loss: Tensor) -> None:
        """Record a loss before backward."""
        self.settle()
        self.guard.gather(loss.detach().mean())
        self._gathered = True

    def judge(self, *, early: bool = False) -> None:
        """Judge the step: all gradients are there, not yet clipped."""
        if self.early and not early:
            self.early = False
            return
        self.settle()
        if not any(parameter.grad is not None for parameter in self._parameters()):
            # training_step returned None, or this optimizer did not take part: nothing to judge.
            return
        if not self._gathered:
            warn_of_unseen_loss("self.manual_backward(loss)")
            return
        decision = self.guard.judge()
        self.open, self.early, self.refused = True, early, decision.refused
        self.vetoes += decision.refused
        self.norm = decision.signals.grad_norm
        self._looked_at = self._versions()

    def clip(self, original: Any, max_norm: float) -> None:
        """Replaces a clip by norm: uses the measured norms if they belong to these gradients."""
        if self.refused:
            return
        if self.open and self._looked_at == self._versions() and self.guard.clips_alike(self._parameters()):
            self.guard.clip(float(max_norm))
        else:
            original(self.optimizer, max_norm)

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _versions(self) -> list[int]:
        """Version counters of the gradients: a module hook may change them after the measurement."""
        return [parameter.grad._version for parameter in self._parameters() if parameter.grad is not None]

    def step(self, original: Any, closure: Any = None, **settings: Any) -> Any:
        """Replaces ``optimizer.step``: the closure (Lightning's forward and backward), then the step if accepted."""
        if self.again:
            raise OrderError("training_step calls optimizer.step() before self.manual_backward")
        judged = self.open
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
            judged = self.open
        if not judged:
            self.judge()
        if not self.refused:
            with self.guard.stepping():
                original(**settings)
        return result

    def settle(self) -> None:
        """Act on the step, which Lightning has finished."""
        if self.open:
            self.open = self.refused = self.early = self._gathered = False
            self.guard.settle()

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.guard.__exit__(kind, error, trace)
