"""A guard in a hand-written loop that uses a framework's ``backward``, clipping and prepared optimizer.

The loop does not change. The framework's methods are wrapped on the objects that the loop uses: ``backward`` provides
the loss, clipping and ``optimizer.step`` ask for a decision, and the next forward pass marks the time between two
steps.
"""

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.policy import Policy
from stayfinite.guard.gates.reader import is_unscaled
from stayfinite.integrations.framework_guard import PassGuard, warn_of_unseen_loss
from stayfinite.report.terminal import Console


class LoopGuard(PassGuard):
    """Guards a loop that a framework takes part in; see the framework's file for construction.

    Arguments:
        owner: the framework's object with ``backward``, the clipping and the log method.
        optimizer: the optimizer that the loop steps.
        raw: the torch optimizer inside.
        scaler: the loss scaler, if any.
        scheduler: the scheduler that the loop steps, or None.
        called: the model as the loop calls it.
        model: the model to guard.
    """

    _clips: ClassVar[Mapping[str, str]]
    """Names of the owner's clipping methods, each with that of ours."""
    _log_method: ClassVar[str]
    """Name of the owner's method that logs a mapping of metrics."""
    _metrics: ClassVar[str]
    """Name of the first argument of the log method."""
    _loss: ClassVar[str]
    """Name of the first argument of ``backward``."""

    def __init__(
        self, owner: object, optimizer: Any, raw: Optimizer, scaler: GradScaler | None, scheduler: Any, *,
        called: nn.Module, model: nn.Module, policy: Policy, run_dir: Path | None,
        forward: Callable[[Any], Tensor] | None, console: Console | None,
    ) -> None:  # fmt: skip
        self._owner, self._optimizer, self._raw, self._scaler = owner, optimizer, raw, scaler
        schedulers = [] if scheduler is None else [scheduler]
        super().__init__(
            called, forward, model=model, optimizer=raw, scheduler=scheduler, scaler=scaler, policy=policy,
            run_dir=run_dir, console=console,
        )  # fmt: skip
        self._gathered = self._taken = False
        self._moving: set[int] = {id(each) for each in schedulers}
        """Schedules that advanced between the last two steps."""
        self._moved: set[int] = set()
        """Schedules that advanced since the last step."""
        put = self._stand_ins.put
        put(owner, "backward", self._backward)
        for name, ours in self._clips.items():
            put(owner, name, getattr(self, ours))
        put(owner, self._log_method, self._log)
        put(optimizer, "step", self._step)
        for each in schedulers:
            self._stand_ins.disguise(each, "step", functools.partial(self._move, each))

    def _leave(self) -> None:
        self._tell_skipped(False)

    # -- what frameworks differ in -----------------------------------------------------------------------------------

    @abstractmethod
    def _autocast(self) -> AbstractContextManager[Any]:
        """Autocast of the model."""

    def _share(self) -> float:
        """Divisor of the loss in ``backward``."""
        return 1.0

    def _steps_now(self) -> bool:
        """Whether ``optimizer.step`` will step, or continue accumulating."""
        return True

    def _tell_skipped(self, skipped: bool) -> None:
        """Report to the framework whether the step was skipped."""

    # -- one step, in the order in which the loop goes through it ----------------------------------------------------

    def _backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._between_steps()
        loss: Tensor = args[0] if args else kwargs[self._loss]
        result = original(*args, **kwargs)
        self.driven.gather(loss.detach().mean() / self._share())
        self._gathered = True
        return result

    def _clip(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._steps_now() and self._judge():
            # Clipping would spread a NaN over all gradients, or raise.
            return self.driven.grad_norm
        return original(*args, **kwargs)

    def _clip_whole(self, parameters: Iterable[Tensor], max_norm: float, otherwise: Callable[[], Any]) -> Any:
        """Clip by norm: uses the measured norms if they belong to these parameters."""
        self.driven.clips_at(float(max_norm))
        if self._judge():
            return self.driven.grad_norm
        if self._decision is not None and self._scaler is None and self.driven.clips_alike(parameters):
            return self.driven.clip(float(max_norm))
        return otherwise()

    def _step(self, original: Any, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        if not self._steps_now():
            original(*args, **kwargs)
            return result
        refused = self._judge()
        if self._taken:
            self._moving = self._moved
        self._stepped = self._decision is not None
        self._taken, self._moved = True, set()
        self._tell_skipped(refused)
        if refused:
            self._back_off()
            return result
        with self.driven.stepping():
            original(*args, **kwargs)
        return result

    def _move(self, scheduler: Any, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._moved.add(id(scheduler))
        if not (self.refused and self._stepped):
            return original(*args, **kwargs)
        if id(scheduler) in self._moving:
            return None
        # An epoch-based schedule advances whatever the last step's decision.
        self._tell_skipped(False)
        try:
            return original(*args, **kwargs)
        finally:
            self._tell_skipped(True)

    def _log(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            return original({**self.figures(), **args[0]}, *args[1:], **kwargs)
        return original(**kwargs | {self._metrics: {**self.figures(), **kwargs[self._metrics]}})

    # -- parts -------------------------------------------------------------------------------------------------------

    def _judge(self) -> bool:
        """Whether the step is refused."""
        self._between_steps()
        if self._decision is None and self._has_gradients():
            if not self._gathered:
                warn_of_unseen_loss(f"{type(self._owner).__name__.lower()}.backward(loss)")
                return False
            self._decide(self.driven.judge())
        return self.refused

    def _has_gradients(self) -> bool:
        return any(p.grad is not None for group in self._raw.param_groups for p in group["params"])

    def _back_off(self) -> None:
        """Let the scaler lower its scale as usual, and drop the refused gradients."""
        scaler, raw = self._scaler, self._raw
        if scaler is not None and scaler.is_enabled():
            if not is_unscaled(scaler, raw):
                scaler.unscale_(raw)
            scaler.update()

    def _forget_step(self, *, abandon: bool = True) -> None:
        self._gathered = False
        super()._forget_step(abandon=abandon)

    def _note(self, batch: Any, stack: ExitStack) -> Callable[[Tensor], None]:
        # The model casts itself, deeper down; this only records the autocast.
        with self._autocast():
            return super()._note(batch, stack)
