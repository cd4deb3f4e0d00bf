"""The callback: Lightning's hooks, and the fit that it guards."""

import os
import warnings
from pathlib import Path
from typing import Any, Self, cast

from stayfinite.core.policy import Policy
from stayfinite.errors import ModelError, OptimizerError
from stayfinite.guard.driven import DrivenGuard
from stayfinite.integrations.fabric import FabricGuard, fabric_guard, steps_in_deepspeed
from stayfinite.integrations.framework_guard import NotGuarded, explaining
from stayfinite.integrations.lightning.fit import GuardedFit
from stayfinite.integrations.lightning.package import as_callback, callback_classes, rebuild
from stayfinite.integrations.places import DEFAULT, Default, agreed_place, place_of
from stayfinite.report.terminal import Console

__all__ = ["FabricGuard", "NotGuarded", "StayFinite", "fabric_guard"]


class StayFinite:
    """A Lightning callback that refuses bad steps before they touch a weight, a moment or the schedule.

    Example:
        >>> trainer = Trainer(callbacks=[StayFinite()])

    Works with ``lightning`` and ``pytorch_lightning``, automatic and manual optimization. What Lightning itself does
    (accumulation, precision, clipping, checkpoints) stays as it is.

    Arguments:
        policy: how a step is judged; ``Policy.watch()`` only observes.
        run_dir: where steps, events and incidents are written; by default ``stayfinite`` in the Trainer's log
            directory, numbered if another training already has one. None for nowhere.
        explain: whether the first bad step of each kind is run again at once to find its cause.
        log: whether gradient norm, vetoes and findings go to the Trainer's loggers and its progress bar.
        console: where lines are printed; stderr by default.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Create a callback of the Lightning in use."""
        made: Self = object.__new__(as_callback(cast(Any, cls), callback_classes()))
        return made

    def __init__(
        self,
        policy: Policy | None = None,
        run_dir: str | os.PathLike[str] | Default | None = DEFAULT,
        explain: bool = True,
        *,
        log: bool = True,
        console: Console | None = None,
    ) -> None:
        self._policy = explaining(policy, explain=explain)
        self._run_dir, self._log, self._console = run_dir, log, console
        self._fit: GuardedFit | None = None
        self._saved: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        kind = next(each for each in type(self).__mro__[1:] if issubclass(each, StayFinite))
        return rebuild, (kind, {**vars(self), "_fit": None})

    @property
    def guards(self) -> list[DrivenGuard]:
        """One guard per optimizer, once training has started."""
        return [] if self._fit is None else [each.guard for each in self._fit.guarded]

    @property
    def run_dir(self) -> Path | None:
        """The run directory, once training has started."""
        return None if self._fit is None else self._fit.run_dir

    # -- Lightning's hooks, in the order of their calls --------------------------------------------------------------

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state of a resumed checkpoint until the guard exists."""
        self._saved = state_dict

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Build the guards: model, optimizers and schedules are final."""
        if self._fit is not None and not self._saved and self._fit.belongs_to(trainer, pl_module):
            # Another fit of the same training.
            self._saved = self._fit.state_dict()
        saved, place, self._fit, self._saved = self._saved, self._place(trainer), None, {}
        try:
            self._fit = _kind_for(trainer)(trainer, pl_module, self._policy, place, self._console)
        except (ModelError, OptimizerError) as error:
            warnings.warn(f"StayFinite cannot guard this training: {error}", NotGuarded, stacklevel=2)
            return
        if saved:
            self._fit.load_state_dict(saved)
        else:
            self._fit.start_at(trainer.global_step)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:  # noqa: ARG002
        """Record the loss of a batch."""
        if self._fit is not None:
            self._fit.before_backward(loss)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:  # noqa: ARG002
        """Judge the step: gradients are complete and unscaled, but not clipped."""
        if self._fit is not None:
            self._fit.before_step(optimizer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        """Act on the step."""
        if self._fit is None:
            return
        self._fit.after_batch()
        if self._log and not trainer.barebones:
            for name, value in self._fit.figures().items():
                bar = name.endswith("vetoes")
                pl_module.log(name, value, on_step=True, on_epoch=False, prog_bar=bar, batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return self._saved if self._fit is None else self._fit.state_dict()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Close the guards."""
        if self._fit is not None:
            self._fit.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Close the guards after an error or interrupt."""
        if self._fit is not None:
            self._fit.end(type(exception), exception, exception.__traceback__)

    def _place(self, trainer: Any) -> Path | None:
        def usual() -> Path | None:
            if trainer.fast_dev_run:
                return None
            return agreed_place(trainer.log_dir or trainer.default_root_dir, again=bool(self._saved))

        return place_of(self._run_dir, usual)


def _kind_for(trainer: Any) -> type[GuardedFit]:
    if not steps_in_deepspeed(trainer.strategy):
        return GuardedFit
    from stayfinite.integrations.lightning.engine_fit import GuardedEngineFit

    return GuardedEngineFit
