"""megatron-core: one line after ``get_megatron_optimizer``; the training loop does not change.

Example:
    >>> from stayfinite.integrations.megatron import megatron_guard
    >>> optimizer = get_megatron_optimizer(config, model)
    >>> guard = megatron_guard(model, optimizer, opt_param_scheduler, run_dir="runs/first")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stayfinite.core.policy import Policy
from stayfinite.errors import MissingExtra, UsageError
from stayfinite.integrations.combined import EngineOptimizers
from stayfinite.integrations.framework_guard import FrameworkGuard, warn_of_unseen_loss
from stayfinite.report.terminal import Console

with MissingExtra.unless("megatron-core", extra="megatron", what_for="stayfinite.integrations.megatron"):
    from megatron.core.optimizer.optimizer import MegatronOptimizer

__all__ = ["MegatronGuard", "megatron_guard"]


class MegatronGuard(FrameworkGuard):
    """Guards a training with megatron-core: DDP, tensor and pipeline parallel, ``DistributedOptimizer``.

    The loop calls ``forward_backward_func``, ``optimizer.step`` and its scheduler as usual. At a bad step
    ``optimizer.step`` returns ``(False, None, None)``, as it does for an fp16 overflow; weights, moments, loss scale
    and, in a loop that checks ``update_successful``, the schedule do not change. Build it after the optimizer, on every
    rank, and before a checkpoint of the guard's own is loaded.

    Arguments:
        model: wrapped by megatron's ``DistributedDataParallel``, or a list of such chunks.
        optimizer: from ``get_megatron_optimizer``.
        scheduler: an ``OptimizerParamScheduler``, restored by a rollback; or None.
        policy: how a step is judged; ``Policy.watch()`` only observes.
        run_dir: where steps and events are written; None for nowhere.
        console: where lines are printed; stderr by default.

    Raises:
        UsageError: these are not megatron's objects.
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: Any,
        scheduler: Any = None,
        *,
        policy: Policy | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        console: Console | None = None,
    ) -> None:
        chunks = [model] if isinstance(model, nn.Module) else list(model)
        _check(chunks, optimizer)
        self._chunks, self._optimizer = chunks, optimizer
        self._leaves = [each for each in getattr(optimizer, "chained_optimizers", [optimizer]) if each.optimizer]
        inner = [_unwrapped(each) for each in chunks]
        whole = inner[0] if len(inner) == 1 else nn.ModuleList(inner)
        super().__init__(
            model=whole, optimizer=EngineOptimizers.of([each.optimizer for each in self._leaves], whole),
            scheduler=None if scheduler is None else _Schedule(scheduler),
            max_norm=getattr(optimizer.config, "clip_grad", 0.0) or None,
            # Tensor parallel ranks hold different plain tensors; megatron compares replicas itself, if configured.
            policy=replace(policy or Policy(), desync_steps=0),
            run_dir=None if run_dir is None else Path(run_dir), console=console,
        )  # fmt: skip
        self._loss: Tensor | None = None
        self._measured: float | None = None
        for name, ours in (
            ("scale_loss", self._scale_loss),
            ("prepare_grads", self._prepare_grads),
            ("get_grad_norm", self._get_grad_norm),
            ("step_with_ready_grads", self._step_with_ready_grads),
            ("step", self._step),
        ):
            self._stand_ins.put(optimizer, name, ours)
        for config in _each(chunk.config for chunk in chunks):
            self._stand_ins.keep(_listen(config, self._hear))
        for config in _each(chunk.ddp_config for chunk in chunks):
            # It would end the training at a NaN that is refused here.
            self._stand_ins.keep(_set(config, "check_for_nan_in_grad", False))
        for each in chunks:
            self._stand_ins.keep(each.register_forward_pre_hook(self._before_forward, with_kwargs=True).remove)

    # -- one step, in the order in which megatron goes through it ----------------------------------------------------

    def _before_forward(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._between_steps()
        with self.driven.passing((args, kwargs)):
            pass

    def _hear(self, loss: Tensor) -> None:
        # The scale of auxiliary losses is requested with a constant.
        if loss.requires_grad:
            share = loss.detach().reshape(()).double()
            self._loss = share if self._loss is None else self._loss + share

    def _scale_loss(self, original: Any, loss: Tensor) -> Any:
        self._hear(loss)
        return original(loss)

    def _step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        clips = [(config, config.clip_grad) for config in _each(leaf.config for leaf in self._leaves)]
        try:
            return original(*args, **kwargs)
        finally:
            for config, norm in clips:
                config.clip_grad = norm
            self._loss = self._measured = None
            self._stepped = self._decision is not None

    def _prepare_grads(self, original: Any) -> bool:
        self._between_steps()
        scalers = [scaler for leaf in self._leaves if (scaler := getattr(leaf, "grad_scaler", None)) is not None]
        before = [(scaler, dict(vars(scaler))) for scaler in scalers]
        scale = float(scalers[0].scale) if scalers else None
        overflow = bool(original())
        loss = _of_last_stage(self._loss, self._chunks[0])
        if loss is None:
            warn_of_unseen_loss("optimizer.scale_loss(loss).backward()")
            return overflow
        self._measured = float(self._optimizer.get_grad_norm())
        self.driven.gather(loss)
        self._decide(self.driven.judge(norm=loss.new_tensor(self._measured), scale=scale))
        if self.refused and not overflow:
            for scaler, settings in before:
                vars(scaler).update(settings)
        assert self._decision is not None
        if not self.refused and (limit := self._decision.limit) is not None:
            for config in _each(leaf.config for leaf in self._leaves):
                config.clip_grad = min(config.clip_grad or limit, limit)
        return overflow or self.refused

    def _get_grad_norm(self, original: Any) -> Any:
        return original() if self._measured is None else self._measured

    def _step_with_ready_grads(self, original: Any) -> Any:
        if self._decision is None:
            return original()
        with self.driven.stepping():
            return original()


megatron_guard = MegatronGuard


class _Schedule:
    """State of the schedule, and how to restore it: megatron's own ``load_state_dict`` adds to it."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def step(self) -> None:
        """Nothing: the loop steps it."""

    def state_dict(self) -> dict[str, Any]:
        return {"num_steps": self._scheduler.num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._scheduler.num_steps = state["num_steps"]
        self._scheduler.step(0)


def _check(chunks: Sequence[Any], optimizer: object) -> None:
    if not isinstance(optimizer, MegatronOptimizer):
        raise UsageError(
            f"expected megatron's optimizer, not {type(optimizer).__name__}",
            fix="megatron_guard(model, get_megatron_optimizer(config, [model]), scheduler)",
        )
    for each in chunks:
        if not hasattr(each, "ddp_config") or not hasattr(each, "config"):
            raise UsageError(
                f"expected a model in megatron's DistributedDataParallel, not {type(each).__name__}",
                fix="pass what the optimizer was built for: megatron_guard(ddp_model, optimizer)",
            )


def _unwrapped(chunk: nn.Module) -> nn.Module:
    """The model inside megatron's wrappers, so parameters keep their original names."""
    while isinstance(inner := getattr(chunk, "module", None), nn.Module):
        chunk = inner
    return chunk


def _of_last_stage(loss: Tensor | None, chunk: Any) -> Tensor | None:
    """Loss of the pipeline's last stage; None if it has none. A collective with several stages."""
    group = getattr(chunk, "pp_group", None)
    group = group[0] if isinstance(group, list) else group
    if group is None or group.size() == 1:
        return loss
    told = torch.zeros(2, dtype=torch.float64, device=next(chunk.parameters()).device)
    if loss is not None:
        told[0], told[1] = loss, 1.0
    dist.all_reduce(told, group=group)
    return told[0] / told[1] if told[1] else None


def _listen(config: Any, hear: Callable[[Tensor], None]) -> Callable[[], None]:
    """Hook each loss before megatron's schedules run backward; returns the undo function."""
    before = config.grad_scale_func

    def grad_scale_func(loss: Tensor) -> Any:
        hear(loss)
        return loss if before is None else before(loss)

    return _set(config, "grad_scale_func", grad_scale_func)


def _set(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Set an attribute; returns the undo function, which does nothing if it was set again since."""
    before = getattr(owner, name)
    setattr(owner, name, value)

    def undo() -> None:
        if getattr(owner, name) is value:
            setattr(owner, name, before)

    return undo


def _each(objects: Any) -> list[Any]:
    """Objects without duplicates."""
    return list({id(each): each for each in objects}.values())
