"""A fit with Lightning's DeepSpeed strategy, whose engine runs backward and steps."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor

from stayfinite.core.policy import Policy
from stayfinite.errors import OptimizerError, UsageError
from stayfinite.integrations.deepspeed import StayFinite, deepspeed_guard
from stayfinite.integrations.deepspeed.masters import check_engine
from stayfinite.integrations.lightning.fit import GuardedFit, GuardedOptimizer
from stayfinite.report.terminal import Console


class GuardedEngine(GuardedOptimizer):
    """An engine and its guard, which hooks losses and steps of the engine itself."""

    def __init__(self, engine_guard: StayFinite, optimizer: Any) -> None:
        super().__init__(engine_guard.driven, optimizer)
        self._engine_guard = engine_guard

    def gather(self, loss: Tensor) -> None:
        """Nothing: hooked in ``engine.backward``."""

    def judge(self, *, early: bool = False) -> None:
        """Nothing: done in ``engine.step``."""

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the guard, which restores the engine."""
        self._engine_guard.__exit__(kind, error, trace)


class GuardedEngineFit(GuardedFit):
    """A :class:`GuardedFit` with an engine. Lightning still steps the schedule, so it is held here."""

    def _guard_all(self, policy: Policy, run_dir: Path | None, console: Console | None) -> list[GuardedOptimizer]:
        self._engine = self._trainer.strategy.model
        try:
            check_engine(self._engine)
        except UsageError as error:
            raise OptimizerError(error.message, fix=error.fix) from error
        self._engine_guard = deepspeed_guard(
            self._engine, policy=policy, run_dir=run_dir, forward=self._forward, console=console
        )
        return [GuardedEngine(self._engine_guard, self._engine.optimizer)]

    def _stand_in_front(self) -> None:
        self._stand_ins.put(self._engine, "step", self._engine_step)

    def _engine_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        before = self._engine.global_steps
        result = original(*args, **kwargs)
        # The engine is called for every batch, and steps at the last one of an accumulation.
        if self._engine.global_steps != before and self._engine_guard.refused:
            self._hold_schedules()
        return result

    def figures(self) -> dict[str, float]:
        """Figures for Lightning's loggers."""
        return self._engine_guard.figures()
