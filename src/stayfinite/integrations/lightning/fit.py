"""One guarded ``trainer.fit``: where Lightning's loop is hooked, and what happens there."""

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import OptimizerError, OrderError
from stayfinite.guard.driven import DrivenGuard
from stayfinite.integrations.combined import Schedules
from stayfinite.integrations.framework_guard import figures_of, warn_of_unseen_loss
from stayfinite.integrations.lightning.rerun import loss_of, rerun
from stayfinite.report.terminal import Console


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


class GuardedFit:
    """Guards the optimizers of one fit from ``on_train_start`` to ``on_train_end``."""

    def __init__(
        self, trainer: Any, module: Any, policy: Policy, run_dir: Path | None, console: Console | None
    ) -> None:
        _check_strategy(trainer)
        self._trainer, self._module = trainer, module
        self.run_dir = run_dir
        self._scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._rest: tuple[Any, ...] = ()
        self._losses: list[Tensor] = []
        self._last: list[Tensor] = []
        self._stood = self._positions()
        self._moved = [False] * len(self._stood)
        """Which schedules advanced in the last batch."""
        self._stand_ins, self._held = StandIns(), StandIns()
        self.guarded = self._guard_all(policy, run_dir, console)
        self._step = module.training_step
        if self.guarded:
            self._stand_ins.put(module, "training_step", self._training_step)
            self._stand_in_front()

    def _guard_all(self, policy: Policy, run_dir: Path | None, console: Console | None) -> list[GuardedOptimizer]:
        optimizers = [each for each in self._trainer.optimizers if type(each).__name__ != "_MockOptimizer"]
        return [
            self._guard(
                optimizer, policy, _place(run_dir, number, len(optimizers)), console, alone=len(optimizers) == 1
            )
            for number, optimizer in enumerate(optimizers)
        ]

    def _stand_in_front(self) -> None:
        """Wrap steps and clipping."""
        for each in self.guarded:
            self._stand_ins.put(each.optimizer, "step", each.step)
        if self._module.automatic_optimization:
            self._stand_ins.put(self._trainer.precision_plugin, "clip_grad_by_norm", self._clip_by_norm)
        else:
            self._stand_ins.put(self._module, "clip_gradients", self._clip_gradients)

    def _guard(
        self, optimizer: Optimizer, policy: Policy, run_dir: Path | None, console: Console | None, *, alone: bool
    ) -> GuardedOptimizer:
        trainer = self._trainer
        clip = trainer.gradient_clip_val if trainer.gradient_clip_algorithm in (None, "norm") else None
        guard = DrivenGuard(
            trainer.strategy.model,
            optimizer,
            Schedules.of([each.scheduler for each in trainer.lr_scheduler_configs]),
            self._scaler,
            clip or None,
            policy,
            run_dir,
            self._forward if alone else None,
            console=console,
        )
        return GuardedOptimizer(guard, optimizer)

    # -- in the order of a batch -------------------------------------------------------------------------------------

    def _training_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if not args or kwargs or hasattr(args[0], "__next__"):
            # A training_step that draws its own batches cannot be run again.
            return original(*args, **kwargs)
        self._rest = args[1:]
        with self.guarded[0].guard.passing(args[0]) as passed:
            output = original(*args)
            if (loss := loss_of(output)) is not None:
                passed(loss)
        return output

    def before_backward(self, loss: Tensor) -> None:
        """Record a loss that Lightning is about to run backward on, scaled in fp16."""
        scale = None if self._scaler is None else self._scaler._get_scale_async()
        loss = loss.detach() if scale is None else loss.detach() / scale
        if len(self.guarded) == 1:
            self.guarded[0].gather(loss)
        else:
            self._losses.append(loss)

    def before_step(self, optimizer: Any, *, early: bool = False) -> bool:
        """Judge the step after backward and unscaling, before clipping; return whether it is refused."""
        raw = getattr(optimizer, "_optimizer", optimizer)
        each = next((each for each in self.guarded if each.optimizer is raw), None)
        if each is None:
            return False
        # With several optimizers, the losses since the last step belong to the one that steps next.
        for loss in self._losses or (self._last if len(self.guarded) > 1 else []):
            each.gather(loss)
        self._last, self._losses = self._losses or self._last, []
        each.judge(early=early)
        if each.refused:
            self._hold_schedules()
        return each.refused

    def _clip_by_norm(self, original: Any, optimizer: Any, clip_val: float) -> None:
        (each,) = self.guarded
        if optimizer is each.optimizer or optimizer is self._trainer.strategy._lightning_optimizers[0]:
            each.clip(original, clip_val)
        else:
            original(optimizer, clip_val)

    def _clip_gradients(self, original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        if not self.before_step(optimizer, early=True):
            original(optimizer, *args, **kwargs)

    def after_batch(self) -> None:
        """Act on the step, after schedules have advanced."""
        self._held.off()
        positions = self._positions()
        self._moved = [before != now for before, now in zip(self._stood, positions, strict=True)]
        self._stood = positions
        for each in self.guarded:
            each.settle()

    def figures(self) -> dict[str, float]:
        """Figures for Lightning's loggers."""
        many = len(self.guarded) > 1
        found: dict[str, float] = {}
        for number, each in enumerate(self.guarded):
            name = f"stayfinite/optimizer{number}" if many else "stayfinite"
            found |= figures_of(each.guard, each.norm, each.vetoes, name)
        return found

    # -- state and end -----------------------------------------------------------------------------------------------

    def belongs_to(self, trainer: Any, module: Any) -> bool:
        """Whether this is a fit of this Trainer and module."""
        return self._trainer is trainer and self._module is module

    def state_dict(self) -> dict[str, Any]:
        """State for Lightning's checkpoints."""
        # Through JSON, so torch.load(weights_only=True) finds no class of ours.
        return {"guards": [json.loads(json.dumps(each.guard.state_dict())) for each in self.guarded]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        for each, saved in zip(self.guarded, state["guards"], strict=False):
            each.guard.load_state_dict(saved)

    def start_at(self, step: int) -> None:
        """Continue counting from this step: the training started without a guard."""
        for each in self.guarded:
            each.guard.start_at(step)

    def end(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Remove all wrappers, and close the guards."""
        self._held.off()
        self._stand_ins.off()
        for each in self.guarded:
            each.end(kind, error, trace)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _forward(self, batch: Any) -> Tensor:
        (each,) = self.guarded
        each.again = True
        try:
            return rerun(self._trainer, self._module, self._step, batch, self._rest)
        finally:
            each.again = False

    def _positions(self) -> list[Any]:
        return [getattr(each.scheduler, "last_epoch", None) for each in self._trainer.lr_scheduler_configs]

    def _hold_schedules(self) -> None:
        """Hold all step-based schedules until the end of the batch."""
        configs = self._trainer.lr_scheduler_configs
        if self._module.automatic_optimization:
            by_step = [each.scheduler for each in configs if each.interval == "step" and not each.reduce_on_plateau]

            def move(original: Any, scheduler: Any, metric: Any) -> None:
                if not any(scheduler is each for each in by_step):
                    original(scheduler, metric)

            self._held.put(self._module, "lr_scheduler_step", move)
            return
        for each, moved in zip(configs, self._moved, strict=True):
            # A schedule stepped manually at the end of an epoch must advance, whatever the last step's decision.
            if moved or not self._trainer.is_last_batch:
                self._held.disguise(each.scheduler, "step", lambda _, *__, **___: None)


def _place(run_dir: Path | None, number: int, count: int) -> Path | None:
    return run_dir if run_dir is None or count == 1 else run_dir / f"optimizer{number}"


def _check_strategy(trainer: Any) -> None:
    name = type(trainer.strategy).__name__
    if "XLA" in name:
        raise OptimizerError(
            f"{name} steps inside its own engine: steps cannot be refused",
            fix="use strategy='auto' or 'ddp', or remove StayFinite from the callbacks",
        )
