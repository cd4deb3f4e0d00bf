"""Where each DeepSpeed optimizer can be stopped: after it has measured a step, before it takes it.

ZeRO measures, calls ``_update_scale``, then decides whether to skip. The guard decides there, with the measured norm,
and a refusal uses ZeRO's own way of skipping. The loss scale is lowered for its own overflows only. Other optimizers
are intercepted before ``step``, which is not run if refused.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from stayfinite.core.decision import Decision
from stayfinite.doctor.stand_ins import StandIns

Ask = Callable[..., Decision | None]
"""Judges a step, given the gradient norm over all ranks and the loss scale; None if no loss is known."""


class Asking(ABC):
    """Interception for one kind of optimizer."""

    def __init__(self, engine: Any, ask: Ask) -> None:
        self._optimizer, self._ask = engine.optimizer, ask
        self._half = bool(engine.fp16_enabled())

    def prepare(self) -> None:  # noqa: B027  (most decide later)
        """Called before the engine clips and steps."""

    @abstractmethod
    def step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Wraps ``optimizer.step``."""

    def stop(self) -> None:  # noqa: B027  (most have nothing to restore)
        """Restore the optimizer."""


class Partitioned(Asking):
    """ZeRO 1, 2 and 3."""

    def __init__(self, engine: Any, ask: Ask, stand_ins: StandIns) -> None:
        super().__init__(engine, ask)
        self._norm: Tensor | None = None
        self._decision: Decision | None = None
        self._measures = "_get_norm_groups" if engine.zero_optimization_stage() == 3 else "scaled_global_norm"
        stand_ins.put(self._optimizer, self._measures, self._measure)
        stand_ins.put(self._optimizer, "_update_scale", self._update_scale)

    def step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the original step, with the decision inside."""
        self._norm = self._decision = None
        with _clip_put_back(self._optimizer):
            result = original(*args, **kwargs)
        if self._decision is not None and self._decision.refused:
            self._optimizer._global_grad_norm = self._decision.signals.grad_norm
        return result

    def _measure(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        from deepspeed.runtime.utils import combine_grad_norm_groups

        measured = original(*args, **kwargs)
        self._norm = combine_grad_norm_groups(measured) if isinstance(measured, list) else torch.as_tensor(measured)
        return measured

    def _update_scale(self, original: Callable[..., Any], has_overflow: bool = False) -> Any:
        optimizer = self._optimizer
        if has_overflow:
            norm = torch.tensor(math.inf)
        else:
            if self._norm is None:
                # The engine is configured not to measure.
                getattr(optimizer, self._measures)()
            assert self._norm is not None
            norm = self._norm / optimizer.loss_scale
        decision = self._decision = self._ask(norm=norm, scale=optimizer.loss_scale if self._half else None)
        if not has_overflow and decision is not None:
            if decision.refused:
                optimizer.overflow = True
                return None
            _limit(optimizer, decision)
        return original(has_overflow)


class Whole(Asking):
    """Half precision without ZeRO, and bf16 with fp32 gradients. Every rank has all gradients."""

    def step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Decide first; the engine zeroes the gradients of a skipped step."""
        optimizer = self._optimizer
        scale = float(optimizer.loss_scale_config.cur_scale) if self._half else 1.0
        decision = self._ask(norm=self._norm() / scale, scale=scale if self._half else None)
        if decision is None:
            return original(*args, **kwargs)
        measured = decision.signals.grad_norm
        if decision.refused and (not self._half or math.isfinite(measured)):
            optimizer.overflow, optimizer._global_grad_norm = True, measured
            return None
        # An fp16 overflow is left to its scaler, which skips and backs off.
        with _clip_put_back(optimizer):
            _limit(optimizer, decision)
            return original(*args, **kwargs)

    def _norm(self) -> Tensor:
        from deepspeed.runtime.utils import get_global_norm, get_global_norm_of_tensors, get_weight_norm

        optimizer = self._optimizer
        if hasattr(optimizer, "get_grads_for_norm"):
            shared, _ = optimizer.get_grads_for_norm()
            return _true(get_global_norm_of_tensors(shared, mpu=optimizer.mpu))
        groups = [[p.grad for p in group if p.grad is not None] for group in optimizer.fp16_groups]
        norms = [get_weight_norm(gradients, mpu=optimizer.mpu) for gradients in groups if gradients]
        bad = any(float(norm) < 0 for norm in norms)
        return _true(-1.0 if bad else get_global_norm(norm_list=norms) if norms else 0.0)


class Plain(Asking):
    """fp32 without ZeRO: a torch optimizer, with gradients on the weights."""

    def __init__(self, engine: Any, ask: Ask) -> None:
        super().__init__(engine, ask)
        # The engine reads this to detect a skipped step.
        self._optimizer.overflow = False

    def prepare(self) -> None:
        """Decide before the engine clips."""
        decision = self._ask()
        self._optimizer.overflow = decision is not None and decision.refused

    def step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Skip the step if it was refused."""
        return None if self._optimizer.overflow else original(*args, **kwargs)

    def stop(self) -> None:
        """Remove the overflow attribute, which torch's optimizers lack."""
        del self._optimizer.overflow


def asking_for(engine: Any, ask: Ask, stand_ins: StandIns) -> Asking:
    """The interception for this engine's optimizer."""
    if hasattr(engine.optimizer, "loss_scale_config") or hasattr(engine.optimizer, "get_grads_for_norm"):
        return Whole(engine, ask)
    return Partitioned(engine, ask, stand_ins) if engine.zero_optimization() else Plain(engine, ask)


def scaler_of(engine: Any) -> Any:
    """The engine's ``torch.amp.GradScaler``, if any: torch autocast in fp16 without ZeRO."""
    return getattr(engine, "torch_autocast_z0_gradscaler", None)


def _true(norm: Any) -> Tensor:
    """The norm as a tensor; DeepSpeed encodes a non-finite one as -1."""
    found = torch.as_tensor(norm)
    return torch.where(found < 0, torch.full_like(found, math.inf), found)


@contextmanager
def _clip_put_back(optimizer: Any) -> Iterator[None]:
    usual = optimizer.clip_grad
    try:
        yield
    finally:
        optimizer.clip_grad = usual


def _limit(optimizer: Any, decision: Decision) -> None:
    """Let the optimizer's own clipping limit an unusual step."""
    if decision.limit is not None:
        optimizer.clip_grad = min(decision.limit, optimizer.clip_grad or math.inf)
