"""A guard on a Trainer whose steps are taken by a DeepSpeed engine, inside ``training_step``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import Trainer

from stayfinite.core.policy import Policy
from stayfinite.integrations.deepspeed import deepspeed_guard
from stayfinite.integrations.deepspeed.guard import tell_of_skips
from stayfinite.integrations.deepspeed.masters import weights_of
from stayfinite.integrations.transformers.attachment import MARK, Attachment
from stayfinite.integrations.transformers.logs import TrueLogs
from stayfinite.integrations.transformers.own_signals import OwnSignals, TrainerReference
from stayfinite.integrations.transformers.patches import Patches
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
        self._patches = Patches()
        self._listen()
        self._steering = self._steering_for(trainer) if steer else None

    def recall(self, state: Mapping[str, Any] | None, step: int) -> None:
        """Resume at this step, with the guard's state from the checkpoint."""
        if state:
            self.driven.load_state_dict(state)
        else:
            self.driven.start_at(step)
        self._follow_steering()

    def end(self) -> None:
        """End a training that finished normally."""
        try:
            self._guard.close()
        finally:
            self._patches.undo()

    def fail(self, error: BaseException) -> None:
        """End a training that failed with this error."""
        try:
            self._guard.__exit__(type(error), error, error.__traceback__)
        finally:
            self._patches.undo()

    def settle(self) -> None:
        """Correct the logged loss of the step, which the engine has settled, and act on signs."""
        if self._guard.decision is not None:
            self._logs.settled(self._guard.decision)
        self._look_at_reference()
        self._steer()

    def _listen(self) -> None:
        trainer, put = self._trainer, self._patches.put
        put(trainer, MARK, self)
        put(trainer, "training_step", self._around(trainer.training_step, self._count))
        put(trainer, "log", self._around(trainer.log, self._log))
        put(trainer, "_run_epoch", self._around(trainer._run_epoch, self._until_error))
        put(trainer, "_finalize_training", self._around(trainer._finalize_training, self._until_error))

    def _count(self, method: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        self._logs.begin()
        # The engine decides during the step, after the loss is known.
        with self._signals.listening(self.driven.hear):
            return method(*args, **kwargs)
