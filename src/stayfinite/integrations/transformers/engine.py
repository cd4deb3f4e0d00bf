"""A guard on a Trainer whose steps are taken by a DeepSpeed engine, inside ``training_step``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import Trainer

from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.integrations.deepspeed import deepspeed_guard
from stayfinite.integrations.deepspeed.guard import tell_of_skips
from stayfinite.integrations.deepspeed.masters import weights_of
from stayfinite.integrations.transformers.attachment import Attachment
from stayfinite.integrations.transformers.logs import TrueLogs
from stayfinite.integrations.transformers.own_signals import OwnSignals, TrainerReference
from stayfinite.report.terminal import Console


class EngineAttachment(Attachment):
    """An :class:`Attachment` for an engine: the engine decides, and the Trainer is hooked only for logs and its end.

    Arguments:
        steer: whether to act on post-training signs; with ZeRO-3 a rollback is not possible.
    """

    def __init__(
        self, trainer: Trainer, policy: Policy, run_dir: Path | None, console: Console, *, steer: bool = False
    ) -> None:
        self._trainer = trainer
        self._guard = deepspeed_guard(trainer.model_wrapped, policy=policy, run_dir=run_dir, console=console)
        tell_of_skips(trainer.optimizer)
        self.driven = self._guard.driven
        self._logs = TrueLogs(trainer, self.driven)
        self._signals = OwnSignals(trainer)
        self._reference = TrainerReference(trainer, weights_of(trainer.model_wrapped))
        self._stand_ins = StandIns()
        self._attach()
        self._steering = self._steering_for(trainer) if steer else None

    def settle(self) -> None:
        """Correct the logged loss of the step, which the engine has settled, and act on signs."""
        if self._guard.decision is not None:
            self._logs.settled(self._guard.decision)
        self._look_at_reference()
        self._steer()

    def _training_step(self, method: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        self._logs.begin()
        # The engine decides during the step, after the loss is known.
        with self._signals.listening(self.driven.hear):
            return method(*args, **kwargs)

    def _detach(self) -> None:
        self._stand_ins.off()

    def _follow_precision(self) -> None:
        """Nothing: the engine casts."""
