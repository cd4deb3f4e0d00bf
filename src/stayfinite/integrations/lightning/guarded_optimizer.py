"""One optimizer of a LightningModule: what is asked and told on its way through a step."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stayfinite.errors import OrderError
from stayfinite.guard.driven import DrivenGuard
from stayfinite.integrations.unguarded import warn_of_unseen_loss


class GuardedOptimizer:
    """One optimizer of a LightningModule and the guard in front of it."""

    def __init__(self, guard: DrivenGuard, optimizer: Optimizer) -> None:
        self.guard, self.optimizer = guard, optimizer
        self.refused = False
        self.vetoes = 0
        self.norm = math.nan
        self.open = False
        """Whether a step was judged and is not settled yet."""
        self.early = False
        """Whether it was judged because gradients were about to be clipped by hand: the step itself is yet to come."""
        self.again = False
        """Whether a bad step is being run again, and must not step."""
        self._gathered = False
        self._looked_at: list[int] = []

    def gather(self, loss: Tensor) -> None:
        """Backward is about to be run on this loss."""
        self.settle()
        self.guard.gather(loss.detach().mean())
        self._gathered = True

    def judge(self, *, early: bool = False) -> None:
        """All gradients of the step are there, and not yet clipped."""
        if self.early and not early:
            self.early = False
            return
        self.settle()
        if not any(parameter.grad is not None for parameter in self._parameters()):
            # The training_step returned None, or nothing of this optimizer took part: there is nothing to judge.
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
        """In place of a clip by norm: with the norms that were just measured, if they are those of these gradients."""
        if self.refused:
            return
        if self.open and self._looked_at == self._versions() and self.guard.clips_alike(self._parameters()):
            self.guard.clip(float(max_norm))
        else:
            original(self.optimizer, max_norm)

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _versions(self) -> list[int]:
        """How often each gradient was written to: a hook of the module may change them after they were measured."""
        return [parameter.grad._version for parameter in self._parameters() if parameter.grad is not None]

    def step(self, original: Any, closure: Any = None, **settings: Any) -> Any:
        """In place of ``optimizer.step``: the closure (Lightning's forward and backward), then the step if it may."""
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
        """Lightning is done with the step."""
        if self.open:
            self.open = self.refused = self.early = self._gathered = False
            self.guard.settle()

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the guard."""
        self.guard.__exit__(kind, error, trace)
