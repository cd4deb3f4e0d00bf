"""The Trainer's logs: the true loss instead of the filtered one, and refusals."""

import math
from typing import Any

from torch import Tensor
from transformers import Trainer

from stayfinite.core.decision import Action, Decision
from stayfinite.guard.driven import DrivenGuard

PREFIX = "stayfinite"


class TrueLogs:
    """Corrects the Trainer's running loss and adds the guard's numbers to its logs.

    The Trainer replaces a NaN by the average so far (``logging_nan_inf_filter``), or stays NaN. Here refused steps are
    excluded: the logged loss is the mean over accepted steps, and NaN if there are none.
    """

    def __init__(self, trainer: Trainer, driven: DrivenGuard) -> None:
        self._trainer, self._driven = trainer, driven
        self._before: Tensor | None = None
        self._steps = 0
        """Steps since the Trainer last logged."""
        self._refused: list[float] = []
        """Losses of refused steps."""
        self._counts = dict.fromkeys((Action.VETO, Action.CUT, Action.ROLLBACK, Action.ESCALATE), 0)

    def begin(self) -> None:
        """Call it before the first batch of a step."""
        if self._before is None:
            self._before = self._trainer._tr_loss.clone()

    def settled(self, decision: Decision) -> None:
        """Record a decided step."""
        self._steps += 1
        if decision.refused:
            if self._before is not None:
                self._trainer._tr_loss.copy_(self._before)
            self._refused.append(decision.signals.loss)
            self._counts[Action.VETO] += 1
            if decision.action in self._counts and decision.action is not Action.VETO:
                self._counts[decision.action] += 1
        self._before = None

    def complete(self, logs: dict[str, Any]) -> None:
        """Complete what the Trainer is about to log."""
        if "loss" not in logs and "train_loss" not in logs:
            return
        if "loss" in logs:
            if self._refused:
                self._put_right(logs)
            self._steps, self._refused = 0, []
        logs[f"{PREFIX}/vetoes"] = self._counts[Action.VETO]
        unusual = self._driven.unusual
        rungs = {
            "bounded": unusual["bounded"],
            "cuts": self._counts[Action.CUT],
            "rollbacks": self._counts[Action.ROLLBACK] + unusual["rollbacks"],
            "escalations": self._counts[Action.ESCALATE],
        }
        logs.update({f"{PREFIX}/{name}": count for name, count in rungs.items() if count})
        if self._driven.rate_factor < 1:
            logs[f"{PREFIX}/lr_factor"] = self._driven.rate_factor
        causes = self._driven.causes
        if causes:
            logs[f"{PREFIX}/findings"] = len(causes)
            logs.update({f"{PREFIX}/found/{cause}": step for cause, step in causes.items()})

    def _put_right(self, logs: dict[str, Any]) -> None:
        taken = self._steps - len(self._refused)
        loss = logs["loss"] * self._steps / taken if taken > 0 else math.nan
        logs["loss"] = loss
        logs[f"{PREFIX}/refused_loss"] = self._refused[-1]
        if taken > 0:
            # For the mean over the whole training, in which every step counts.
            self._trainer._total_loss_scalar += loss * len(self._refused)
