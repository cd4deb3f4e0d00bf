"""A callback for OLMo-core's trainer: bad steps are refused before they change a weight, a moment or a window.

OLMo-core's loop does not change. During ``fit`` four methods of the train module and its optimizer are wrapped:
``train_batch`` (is it a dry run?), ``model_forward`` (the loss), ``optim_step`` (may it be taken?) and ``optim.step``
(at which learning rate?).
"""

import json
import math
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite.core.decision import Decision
from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import MissingExtra, ModelError, OptimizerError
from stayfinite.guard.driven import DrivenGuard
from stayfinite.integrations.framework_guard import NotGuarded, explaining, warn_of_unseen_loss
from stayfinite.integrations.lightning.package import as_callback
from stayfinite.integrations.places import agreed_place
from stayfinite.report.terminal import Console

__all__ = ["NotGuarded", "StayFinite"]

LOSS = "train/CE loss"
"""Metric at which OLMo-core ends a run if it is not finite."""


@dataclass(eq=False)
class StayFinite:
    """A callback for OLMo-core that refuses bad steps on all ranks.

    Example:
        >>> trainer_config = trainer_config.with_callback("stayfinite", StayFinite())

    Clipping, schedule, checkpoints and metrics stay OLMo-core's own. Its checkpoints include the guard's memory.
    """

    policy: Policy | None = None
    """How a step is judged; ``Policy.watch()`` only observes."""

    run_dir: str | None = ""
    """Where steps, events and incidents are written; by default ``stayfinite`` in the save folder, or in the working
    directory where that is a URL; numbered if another run already has one. None for nowhere."""

    explain: bool = True
    """Whether the first bad step of each kind is run again at once to find its cause."""

    log: bool = True
    """Whether to add gradient norm and vetoes to the trainer's metrics."""

    console: Console | None = None
    """Where lines are printed; stderr by default."""

    # Before the checkpointer, so it saves a settled step.
    priority: ClassVar[int] = 10

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Create a callback of OLMo-core."""
        made: Self = object.__new__(_as_callback(cls))
        return made

    def __post_init__(self) -> None:
        self._fit: GuardedFit | None = None
        self._saved: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return StayFinite, (self.policy, self.run_dir, self.explain, self.log)

    @property
    def guard(self) -> DrivenGuard | None:
        """The guard, once training has started."""
        return None if self._fit is None else self._fit.guard

    @property
    def place(self) -> Path | None:
        """The run directory, once training has started."""
        return None if self._fit is None else self._fit.run_dir

    # -- OLMo-core's hooks, in the order of their calls --------------------------------------------------------------

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state of a resumed checkpoint until the guard exists."""
        self._saved = state_dict

    def pre_train(self) -> None:
        """Build the guard: model, optimizer and position are final."""
        trainer: Any = getattr(self, "trainer")  # noqa: B009
        policy = explaining(self.policy, explain=self.explain)
        saved, self._saved = self._saved, {}
        try:
            check_train_module(trainer.train_module)
            self._fit = GuardedFit(trainer, policy, self._place(trainer, again=bool(saved)), self.console)
        except (ModelError, OptimizerError) as error:
            warnings.warn(f"StayFinite cannot guard this training: {error}", NotGuarded, stacklevel=2)
            return
        if saved:
            self._fit.guard.load_state_dict(saved)

    def post_train_batch(self) -> None:
        """Act on the step, taken or not."""
        if self._fit is not None:
            self._fit.after_step(log=self.log)

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return self._saved if self._fit is None else self._fit.state_dict()

    def post_checkpoint_saved(self, path: Any) -> None:
        """Record a checkpoint."""
        if self._fit is not None:
            self._fit.guard.record("checkpoint", path=str(path))

    def on_error(self, exc: BaseException) -> None:
        """Close the guard after an error or interrupt."""
        if self._fit is not None:
            self._fit.end(exc)

    def close(self) -> None:
        """Close the guard."""
        if self._fit is not None:
            self._fit.end()

    def _place(self, trainer: Any, *, again: bool) -> Path | None:
        if self.run_dir != "":
            return None if self.run_dir is None else Path(self.run_dir)
        home = trainer.work_dir if "://" in str(trainer.save_folder) else trainer.save_folder
        return agreed_place(home, again=again)


class GuardedFit:
    """One guarded ``trainer.fit``."""

    def __init__(self, trainer: Any, policy: Policy, run_dir: Path | None, console: Console | None) -> None:
        self._trainer, self._module, self.run_dir = trainer, trainer.train_module, run_dir
        self._optimizer: Any = self._module.optim
        clip = self._module.max_grad_norm
        self.guard = DrivenGuard(
            self._module.model, self._optimizer, None, None, clip, policy, run_dir, self._again, console=console
        )
        self.guard.start_at(trainer.global_step)
        self._decision: Decision | None = None
        self._vetoes = 0
        self._dry, self._ended = False, False
        self._stand_ins = StandIns()
        self._stand_ins.put(self._module, "train_batch", self._train_batch)
        self._forward = self._module.model_forward
        self._stand_ins.put(self._module, "model_forward", self._model_forward)
        self._stand_ins.put(self._module, "optim_step", self._optim_step)
        self._stand_ins.put(self._optimizer, "step", self._step)

    # -- in the order of a step --------------------------------------------------------------------------------------

    def _train_batch(self, original: Any, batch: Any, dry_run: bool = False) -> Any:
        self._dry = dry_run
        try:
            return original(batch, dry_run=dry_run)
        finally:
            self._dry = False

    def _model_forward(self, original: Any, input_ids: Tensor, **inputs: Any) -> Any:
        if self._dry or not torch.is_grad_enabled():
            return original(input_ids, **inputs)
        with self.guard.passing({"input_ids": input_ids, **inputs}) as passed:
            output = original(input_ids, **inputs)
            loss = getattr(output, "loss", None)
            if loss is not None:
                passed(loss.detach())
        if loss is not None:
            # A share of the step's loss: OLMo-core divides by the tokens of the whole batch.
            self.guard.gather(loss)
        return output

    def _optim_step(self, original: Any) -> Any:
        if not self.guard.gathered:
            warn_of_unseen_loss("train_module.model_forward(...).loss")
            return original()
        # OLMo-core counts batches, including skipped ones.
        self.guard.start_at(self._trainer.global_step - 1)
        self._decision = self.guard.judge()
        if not self._decision.refused:
            return original()
        self._vetoes += 1
        self._forget_numbers()
        return None

    def _step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        with self.guard.stepping():
            return original(*args, **kwargs)

    def after_step(self, *, log: bool) -> None:
        """Act on the step, after OLMo-core has zeroed gradients and advanced the schedule."""
        decision, self._decision = self._decision, None
        if decision is None:
            return
        if log:
            self._trainer.record_metric("vetoes", self._vetoes, namespace="stayfinite")
            if math.isfinite(decision.signals.grad_norm):
                self._trainer.record_metric("grad norm", decision.signals.grad_norm, namespace="stayfinite")
        self.guard.settle()

    def _forget_numbers(self) -> None:
        """Drop the numbers of a refused step: its loss would end the run, or corrupt a SkipStepOptimizer."""
        window = getattr(self._optimizer, "_losses", None)
        if isinstance(window, list) and window:
            window.pop()
        self._trainer._metrics.get(self._trainer.global_step, {}).pop(LOSS, None)

    # -- state and end -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State for OLMo-core's checkpoints."""
        plain: dict[str, Any] = json.loads(json.dumps(self.guard.state_dict()))
        return plain

    def end(self, error: BaseException | None = None) -> None:
        """Remove all wrappers, and close the guard."""
        if self._ended:
            return
        self._ended = True
        self._stand_ins.off()
        self.guard.__exit__(None if error is None else type(error), error, None)

    def _again(self, batch: dict[str, Any]) -> Tensor:
        """Run a forward pass again, for an autopsy."""
        loss: Tensor = self._forward(**batch).loss
        return loss


def check_train_module(module: Any) -> None:
    """Raise ModelError or OptimizerError if a train module's steps cannot be refused."""
    name = type(module).__name__
    # First: a train module with several models may refuse to name one.
    if not isinstance(getattr(module, "optim", None), Optimizer):
        raise OptimizerError(
            f"{name} has no single torch optimizer: its steps cannot be refused",
            fix="train with TransformerTrainModule and without pp_config; or in a loop of your own with Guard",
        )
    if not isinstance(getattr(module, "model", None), nn.Module) or not hasattr(module, "model_forward"):
        raise ModelError(
            f"{name} has no model and model_forward() to get the loss from", fix="train with TransformerTrainModule"
        )


def _as_callback(kind: Any) -> Any:
    if find_spec("olmo_core") is None:
        raise MissingExtra.of("olmo_core", extra="olmo", what_for="stayfinite.integrations.olmo")
    return as_callback(kind, (import_module("olmo_core.train.callbacks").Callback,))
