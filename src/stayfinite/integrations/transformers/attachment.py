"""A guard on one Trainer during one ``train()``: what is replaced, and what happens there."""

import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import Trainer

from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.guard.driven import DrivenGuard
from stayfinite.integrations.framework_guard import NotGuarded
from stayfinite.integrations.transformers.logs import TrueLogs
from stayfinite.integrations.transformers.own_signals import OwnSignals, TrainerReference
from stayfinite.integrations.transformers.seams import (
    Rerun,
    change_precision,
    layers_of,
    plain_optimizer,
    precision_of,
    prepares_in_its_own_way,
)
from stayfinite.report.terminal import Console
from stayfinite.rl import Steering

MARK = "_stayfinite"


class Attachment:
    """Everything that is replaced on a Trainer when training starts, and restored when it ends, however it ends.

    ``training_step`` is hooked (batches and losses); ``clip_grad_norm_`` asks for a decision first, because clipping
    spreads one NaN over all gradients; ``optimizer.step`` does nothing if the step is refused, and the Trainer is told
    that it was skipped, so its schedule does not advance.

    Arguments:
        trainer: with optimizer, schedule and wrapped model.
        steer: whether to act on post-training signs.
    """

    def __init__(
        self, trainer: Trainer, policy: Policy, run_dir: Path | None, console: Console, *, steer: bool = False
    ) -> None:
        self._trainer: Any = trainer
        self._rerun = Rerun(trainer)
        self._signals = OwnSignals(trainer)
        self._reference = TrainerReference(trainer, plain_optimizer(trainer.optimizer))
        if policy.precision is None:
            policy = replace(policy, precision=precision_of(trainer))
        self._optimizer: Any = trainer.optimizer
        self._scaler = next((layer.scaler for layer in layers_of(self._optimizer)), None)
        norm = trainer.args.max_grad_norm
        self.driven = DrivenGuard(
            trainer.model_wrapped,
            plain_optimizer(self._optimizer),
            scheduler=trainer.lr_scheduler,
            scaler=self._scaler,
            max_norm=norm if norm and norm > 0 else None,
            policy=policy,
            run_dir=run_dir,
            forward=self._rerun,
            describe=self._signals.describe if self._signals.known else None,
            console=console,
        )
        self._guard: Any = self.driven
        """What is closed at the end."""
        self._precision = self.driven.precision
        self._logs = TrueLogs(trainer, self.driven)
        self._clipped = self._warned = False
        self._stand_ins = StandIns()
        self._attach()
        accelerator, put = trainer.accelerator, self._stand_ins.put
        put(accelerator, "clip_grad_norm_", self._clip)
        put(self._optimizer, "step", self._step)
        self._steering = self._steering_for(trainer) if steer else None
        if policy.replay_every:
            self._stand_ins.put(trainer.accelerator, "backward", self._backward)

    # -- beginning and end -------------------------------------------------------------------------------------------

    def recall(self, state: Mapping[str, Any] | None, step: int) -> None:
        """Resume at this step, with the guard's state from the checkpoint."""
        if state:
            self.driven.load_state_dict(state)
        else:
            self.driven.start_at(step)
        self._follow_precision()
        self._follow_steering()

    def end(self, error: BaseException | None = None) -> None:
        """End a training that finished normally, or failed with this error."""
        try:
            self._guard.__exit__(None if error is None else type(error), error, error and error.__traceback__)
        finally:
            self._detach()

    @property
    def attached(self) -> bool:
        """Whether the Trainer is still patched."""
        return getattr(self._trainer, MARK, None) is self

    def _attach(self) -> None:
        """Mark the Trainer, and hook its batches, logs and end."""
        trainer, put = self._trainer, self._stand_ins.put
        self._stand_ins.set(trainer, MARK, self)
        put(trainer, "training_step", self._training_step)
        put(trainer, "log", self._log)
        put(trainer, "_run_epoch", self._until_error)
        put(trainer, "_finalize_training", self._until_error)

    def _detach(self) -> None:
        self._stand_ins.off()
        self._tell_skipped(skipped=False)

    # -- one step, in the order in which the Trainer goes through it -------------------------------------------------

    def _training_step(
        self, method: Callable[..., Tensor], model: nn.Module, inputs: Any, *args: Any, **kwargs: Any
    ) -> Tensor:
        self._logs.begin()
        self._rerun.remember(model, args, kwargs)
        with ExitStack() as stack:
            stack.enter_context(self._signals.listening(self.driven.hear))
            passed: list[Callable[[Tensor], None]] = []

            def begin(batch: Any) -> None:
                # The model casts itself, deeper down; this only records the autocast.
                with self._trainer.accelerator.autocast():
                    passed.append(stack.enter_context(self.driven.passing(batch)))

            if prepares_in_its_own_way(self._trainer):
                stack.enter_context(self._preparing(begin))
            else:
                begin(inputs)
            loss = method(model, inputs, *args, **kwargs)
            for ended in passed:
                ended(loss)
        self.driven.gather(loss)
        return loss

    def _backward(self, method: Callable[..., Any], loss: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.driven.lead(loss)
        return method(loss, *args, **kwargs)

    def _preparing(self, begin: Callable[[Any], None]) -> StandIns:
        """Context in which the forward pass starts after its inputs were prepared."""

        def prepare(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            prepared = method(*args, **kwargs)
            begin(prepared)
            return prepared

        return StandIns().put(self._trainer, "_prepare_inputs", prepare)

    def _clip(
        self, method: Callable[..., Any], parameters: Any, max_norm: float, *args: Any, **kwargs: Any
    ) -> Tensor | Any:
        if self._clipped or not self._asked_to_judge():
            return method(parameters, max_norm, *args, **kwargs)
        parameters = list(parameters)
        decision = self.driven.judge(unscale=True)
        if decision.refused:
            return self.driven.grad_norm
        self._clipped = True
        if not args and not kwargs and self.driven.clips_alike(parameters):
            return self.driven.grad_norm if math.isinf(max_norm) else self.driven.clip(max_norm)
        # Already unscaled.
        with StandIns().put(self._trainer.accelerator, "unscale_gradients", lambda *_: None):
            return method(parameters, max_norm, *args, **kwargs)

    def _step(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._asked_to_judge():
            return method(*args, **kwargs)
        if self.driven.judge(unscale=True).refused:
            if self._scaler is not None:
                # It recorded the overflow when it unscaled, and backs off as usual.
                with suppress(AssertionError):
                    self._scaler.update()
            self._tell_skipped(skipped=True)
            return None
        self._tell_skipped(skipped=False)
        with self.driven.stepping():
            return method(*args, **kwargs)

    def _asked_to_judge(self) -> bool:
        if not self._trainer.accelerator.sync_gradients:
            return False
        if not self.driven.gathered and not self._warned:
            self._warned = True
            warnings.warn(
                f"{type(self._trainer).__name__} steps without training_step: its loss is unknown, and its steps are "
                "not guarded",
                NotGuarded,
                stacklevel=4,
            )
        return self.driven.gathered

    def settle(self) -> None:
        """Act on the step, which is finished except for logging.

        Raises:
            TrainingDiverged: nothing has helped.
        """
        if not self.driven.judged:
            return
        self._clipped = False
        self._logs.settled(self.driven.judge())
        self._look_at_reference()
        self.driven.settle()
        self._follow_precision()
        self._steer()

    def _log(self, method: Callable[..., None], logs: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        self._logs.complete(logs)
        method(logs, *args, **kwargs)

    def _until_error(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            if self.attached:
                self.end(error)
            raise

    def _tell_skipped(self, *, skipped: bool) -> None:
        for layer in layers_of(self._optimizer):
            layer._is_overflow = skipped

    def _look_at_reference(self) -> None:
        if (sign := self._reference.look(self._trainer.state.global_step)) is not None:
            self.driven.tell_sign(sign)

    def _steering_for(self, trainer: Any) -> Steering | None:
        """Steering for trainers that sample."""
        beta = float(getattr(trainer, "beta", None) or 0.0)
        return Steering(self.driven, kl=beta) if self._signals.samples else None

    def _steer(self) -> None:
        if self._steering is not None and self._steering.follow():
            self._follow_steering()

    def _follow_steering(self) -> None:
        if self._steering is not None and self._steering.kl:
            self._stand_ins.set(self._trainer, "beta", self._steering.kl)

    def _follow_precision(self) -> None:
        if self.driven.precision != self._precision and self.driven.precision is not None:
            self._precision = self.driven.precision
            self._scaler = None
            change_precision(self._trainer, self._precision, self._stand_ins)
