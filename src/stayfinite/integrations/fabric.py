"""Lightning Fabric: one line after ``fabric.setup``; the loop does not change."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import UsageError
from stayfinite.integrations.framework_guard import explaining
from stayfinite.integrations.loop import LoopGuard
from stayfinite.integrations.places import DEFAULT, Default, agreed_place, place_of
from stayfinite.report.terminal import Console


class FabricGuard(LoopGuard):
    """Guards a loop that uses Lightning Fabric.

    Example:
        >>> model, optimizer = fabric.setup(model, optimizer)
        >>> guard = fabric_guard(fabric, model, optimizer, scheduler)

    The loop calls ``fabric.backward``, ``fabric.clip_gradients``, ``optimizer.step`` and ``scheduler.step`` as usual. A
    bad step does nothing, ``guard.refused`` is True, and the schedule does not advance. ``fabric.log`` and
    ``fabric.log_dict`` also get gradient norm, vetoes and findings. To save the guard's memory, add it to the state:
    ``fabric.save(path, {"model": model, ..., "guard": guard})``.

    Arguments:
        fabric: the loop's Fabric.
        model: as returned by ``fabric.setup``.
        optimizer: as returned by ``fabric.setup``.
        scheduler: the scheduler that the loop steps, or None.
        policy: how a step is judged; ``Policy.watch()`` only observes.
        run_dir: where steps, events and incidents are written; by default ``stayfinite`` in the directory of Fabric's
            logger, if it has one. None for nowhere.
        forward: ``forward(batch) -> loss``, called as ``guard.forward(batch)``: allows a bad step to be explained.
        explain: whether the first bad step of each kind is run again at once to find its cause.
        console: where lines are printed; stderr by default.

    Raises:
        UsageError: the parts were not set up, or an engine steps the optimizer.
    """

    _clips = {"clip_gradients": "_clip_gradients"}  # noqa: RUF012
    _log_method, _metrics, _loss = "log_dict", "metrics", "tensor"

    def __init__(
        self,
        fabric: Any,
        model: nn.Module,
        optimizer: Any,
        scheduler: Any = None,
        *,
        policy: Policy | None = None,
        run_dir: str | os.PathLike[str] | Default | None = DEFAULT,
        forward: Callable[[Any], Tensor] | None = None,
        explain: bool = True,
        console: Console | None = None,
    ) -> None:
        _check(fabric, model, optimizer)
        self._precision = fabric.strategy.precision
        super().__init__(
            fabric, optimizer, optimizer.optimizer, getattr(self._precision, "scaler", None), scheduler, called=model,
            # Without Fabric's wrapper, so parameters keep their original names.
            model=getattr(model, "_forward_module"),  # noqa: B009
            policy=explaining(policy, explain=explain), run_dir=_place(fabric, run_dir), forward=forward,
            console=console,
        )  # fmt: skip

    def _autocast(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self._precision.forward_context()
        return found

    def _bare(self) -> AbstractContextManager[object]:
        """Context in which the caller controls the precision of the forward pass."""
        model: Any = self._called
        precision = self._precision
        if self._scaler is None and "mixed" not in str(precision.precision):
            return nullcontext()

        def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.is_autocast_enabled(next(model.parameters()).device.type):
                args, kwargs = precision.convert_input((args, kwargs))
            return precision.convert_output(model._forward_module(*args, **kwargs))

        return StandIns().put(model, "forward", forward)

    def _clip_gradients(self, original: Any, module: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        norm = kwargs.get("max_norm")
        if args or norm is None or kwargs.get("norm_type", 2.0) != 2.0 or optimizer is not self._optimizer:
            return self._clip(original, module, optimizer, *args, **kwargs)
        parameters = [parameter for group in self._raw.param_groups for parameter in group["params"]]
        return self._clip_whole(parameters, norm, lambda: original(module, optimizer, **kwargs))


fabric_guard = FabricGuard


def steps_in_deepspeed(strategy: Any) -> bool:
    """Whether a Lightning strategy leaves backward and steps to a DeepSpeed engine."""
    return any(each.__name__ == "DeepSpeedStrategy" for each in type(strategy).__mro__)


def _check(fabric: Any, model: Any, optimizer: Any) -> None:
    missing = [name for name in ("backward", "clip_gradients", "strategy") if not hasattr(fabric, name)]
    if missing:
        raise UsageError(
            f"expected a Fabric, not {type(fabric).__name__}", fix="fabric_guard(fabric, model, optimizer, scheduler)"
        )
    name = type(fabric.strategy).__name__
    if steps_in_deepspeed(fabric.strategy):
        raise UsageError(
            f"{name} of Fabric bypasses the DeepSpeed engine: steps cannot be refused",
            fix="Lightning's Trainer with StayFinite(), or deepspeed.initialize with deepspeed_guard(engine)",
        )
    if "XLA" in name:
        raise UsageError(
            f"{name} steps inside its own engine: steps cannot be refused",
            fix="remove the guard, or use strategy='auto' or 'ddp'",
        )
    if not hasattr(model, "_forward_module") or not hasattr(optimizer, "optimizer"):
        raise UsageError(
            "model and optimizer must be what fabric.setup returned",
            fix="model, optimizer = fabric.setup(model, optimizer) first, then the guard",
        )


def _place(fabric: Any, run_dir: str | os.PathLike[str] | Default | None) -> Path | None:
    def usual() -> Path | None:
        for each in fabric.loggers:
            # Creates its directory; some loggers warn if it is not empty.
            _ = each.experiment
        home = next((found for each in fabric.loggers if (found := getattr(each, "log_dir", None))), None)
        return None if home is None else agreed_place(home)

    return place_of(run_dir, usual)
