"""accelerate: one line after ``accelerator.prepare``; the loop does not change.

Example:
    >>> from stayfinite.integrations.accelerate import accelerate_guard
    >>> model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    >>> guard = accelerate_guard(accelerator, model, optimizer, scheduler)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import MissingExtra, UsageError
from stayfinite.integrations.framework_guard import explaining
from stayfinite.integrations.loop import LoopGuard
from stayfinite.integrations.places import DEFAULT, Default, agreed_place, place_of
from stayfinite.report.terminal import Console
from stayfinite.state.parts import unwrapped

with MissingExtra.unless("accelerate", extra="hf", what_for="stayfinite.integrations.accelerate"):
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer
    from accelerate.utils import DistributedType
    from accelerate.utils.operations import convert_to_fp32

if TYPE_CHECKING:
    from stayfinite.integrations.deepspeed.guard import AcceleratedEngine

__all__ = ["StayFinite", "accelerate_guard"]

ENGINES = (DistributedType.MEGATRON_LM, DistributedType.XLA)


class StayFinite(LoopGuard):
    """Guards a loop that uses accelerate.

    The loop calls ``accelerator.backward``, ``clip_grad_norm_``, the prepared optimizer and scheduler as usual. A bad
    step does nothing, ``accelerator.optimizer_step_was_skipped`` is True, and the schedule does not advance.
    ``accelerator.log`` also gets gradient norm, vetoes and findings.

    Arguments:
        accelerator: the loop's accelerator.
        model: as returned by ``prepare``.
        optimizer: as returned by ``prepare``.
        scheduler: as returned by ``prepare``, or one that the loop steps itself, or None.
        policy: how a step is judged; ``Policy.watch()`` only observes.
        run_dir: where steps, events and incidents are written; by default ``stayfinite`` in the accelerator's project
            directory, if it has one. None for nowhere.
        forward: ``forward(batch) -> loss``, called as ``guard.forward(batch)``: allows a bad step to be explained. Not
            needed for a model that returns its loss, as in transformers.
        explain: whether the first bad step of each kind is run again at once to find its cause.
        checkpointing: whether ``save_state`` and ``load_state`` include the guard's memory. Turn it off to load a state
            that was saved without one.
        console: where lines are printed; stderr by default.

    Raises:
        UsageError: the parts were not prepared, or an engine steps the optimizer.
    """

    _clips = {"clip_grad_value_": "_clip", "clip_grad_norm_": "_clip_norm"}  # noqa: RUF012
    _log_method, _metrics, _loss = "log", "values", "loss"

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        optimizer: Any,
        scheduler: Any = None,
        *,
        policy: Policy | None = None,
        run_dir: str | os.PathLike[str] | Default | None = DEFAULT,
        forward: Callable[[Any], Tensor] | None = None,
        explain: bool = True,
        checkpointing: bool = True,
        console: Console | None = None,
    ) -> None:
        _check(accelerator, model, optimizer)
        self._accelerator: Any = accelerator
        raw = optimizer
        while isinstance(raw, AcceleratedOptimizer):
            raw = raw.optimizer
        super().__init__(
            accelerator, optimizer, raw, optimizer.scaler, scheduler, called=model, model=model,
            policy=explaining(policy, explain=explain), run_dir=_place(accelerator, run_dir), forward=forward,
            console=console,
        )  # fmt: skip
        self._stand_ins.put(accelerator, "save_state", self._save_state)
        self._stand_ins.put(accelerator, "end_training", self._close_with)
        if checkpointing:
            accelerator.register_for_checkpointing(self)

    def _clip_norm(self, original: Any, parameters: Any, max_norm: float, norm_type: float = 2) -> Any:
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        if not self._steps_now() or norm_type != 2:
            return self._clip(original, parameters, max_norm, norm_type)
        return self._clip_whole(parameters, max_norm, lambda: original(parameters, max_norm, norm_type))

    def _autocast(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self._accelerator.autocast()
        return found

    def _share(self) -> float:
        return float(self._accelerator.gradient_accumulation_steps)

    def _steps_now(self) -> bool:
        return bool(self._accelerator.sync_gradients)

    def _tell_skipped(self, skipped: bool) -> None:
        self._optimizer._is_overflow = skipped

    def _bare(self) -> AbstractContextManager[object]:
        """Context without the casting that accelerate added to the model."""
        inner = unwrapped(self._called)
        original = getattr(inner, "_original_forward", None)
        if original is None:
            return nullcontext()
        return StandIns().put(inner, "forward", lambda _, *args, **kwargs: convert_to_fp32(original(*args, **kwargs)))

    def _save_state(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._between_steps()
        return original(*args, **kwargs)


def accelerate_guard(
    accelerator: Accelerator, model: nn.Module, optimizer: Any, scheduler: Any = None, **settings: Any
) -> StayFinite | AcceleratedEngine:
    """Guard a loop that uses accelerate; ``settings`` are those of :class:`StayFinite`.

    If accelerate built a DeepSpeed engine, the engine is guarded; the returned guard has the same methods.
    """
    if _is_engine(accelerator):
        return _engine_guard(accelerator, model, optimizer, **settings)
    return StayFinite(accelerator, model, optimizer, scheduler, **settings)


def _is_engine(accelerator: Any) -> bool:
    return isinstance(accelerator, Accelerator) and accelerator.distributed_type == DistributedType.DEEPSPEED


def _engine_guard(
    accelerator: Accelerator,
    engine: Any,
    optimizer: Any,
    *,
    run_dir: str | os.PathLike[str] | Default | None = DEFAULT,
    checkpointing: bool = True,  # noqa: ARG001  its checkpoints always carry the memory, and load without one
    **settings: Any,
) -> AcceleratedEngine:
    from stayfinite.integrations.deepspeed.guard import AcceleratedEngine

    return AcceleratedEngine(accelerator, engine, optimizer, run_dir=_place(accelerator, run_dir), **settings)


def _check(accelerator: Any, model: Any, optimizer: Any) -> None:
    if not isinstance(accelerator, Accelerator):
        raise UsageError(
            f"expected an Accelerator, not {type(accelerator).__name__}",
            fix="accelerate_guard(accelerator, model, optimizer, scheduler)",
        )
    if _is_engine(accelerator):
        raise UsageError(
            "this is a DeepSpeed engine, which needs its own guard",
            fix="accelerate_guard(accelerator, model, optimizer, scheduler) picks the right one",
        )
    if accelerator.distributed_type in ENGINES:
        raise UsageError(
            f"{accelerator.distributed_type.value} steps inside its own engine: steps cannot be refused",
            fix="remove the guard, or train with DDP or FSDP",
        )
    if not isinstance(optimizer, AcceleratedOptimizer) or not isinstance(model, nn.Module):
        raise UsageError(
            "model and optimizer must be what accelerator.prepare returned",
            fix="model, optimizer, ... = accelerator.prepare(model, optimizer, ...) first, then the guard",
        )


def _place(accelerator: Accelerator, run_dir: str | os.PathLike[str] | Default | None) -> Path | None:
    home = accelerator.project_dir
    return place_of(run_dir, lambda: agreed_place(home) if home else None)
