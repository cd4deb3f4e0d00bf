"""A learning rate cut that the scheduler never sees.

Many schedulers compute the next learning rate from the current one, so a permanent change in the optimizer would
distort the schedule. The cut is applied only around the optimizer's step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stayfinite.core.policy import Policy
from stayfinite.errors import StateError


class LearningRateCut:
    """Lowers the learning rate for a while, then raises it back to the schedule's."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._taken: int | None = None
        """Steps under the current cut; None without one."""

    def begin(self) -> None:
        """Start a cut, or restart the current one."""
        self._taken = 0

    @property
    def factor(self) -> float:
        """Factor of the schedule's learning rate at the next step."""
        if self._taken is None:
            return 1.0
        low, length = self._policy.cut_factor, self._policy.cut_steps
        risen = (self._taken - length) / length
        return low + (1 - low) * min(max(risen, 0.0), 1.0)

    def advance(self) -> None:
        if self._taken is not None:
            self._taken += 1
            if self._taken >= 2 * self._policy.cut_steps:
                self._taken = None

    @contextmanager
    def applied(self, optimizer: Optimizer) -> Iterator[None]:
        """Context in which the optimizer has the cut learning rate; restored bitwise afterwards."""
        factor = self.factor
        if factor == 1.0:
            yield
            return
        before = [_value(group["lr"]) for group in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, before, strict=True):
            _set(group, rate * factor)
        try:
            yield
        finally:
            for group, rate in zip(optimizer.param_groups, before, strict=True):
                _set(group, rate)

    def state_dict(self) -> dict[str, Any]:
        return {"taken": self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        taken = state.get("taken")
        if taken is not None and not isinstance(taken, int):
            raise StateError(f"not a saved rate cut: {state!r}", fix="pass what state_dict() returned")
        self._taken = taken


def _value(rate: float | Tensor) -> float | Tensor:
    return rate.clone() if isinstance(rate, Tensor) else rate


def _set(group: dict[str, Any], rate: float | Tensor) -> None:
    # Fused kernels and captured graphs keep a reference to the tensor.
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
