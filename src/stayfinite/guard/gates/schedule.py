"""The learning rate: the schedule, which does not advance at a refused step even if the refusal is known late; a cut
that it never sees; and the settings of an optimizer's groups.

Many schedulers compute the next learning rate from the current one, so a permanent change in the optimizer would
distort the schedule. A cut is applied only around the optimizer's step.
"""

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from stayfinite.core.policy import Policy
from stayfinite.errors import StateError
from stayfinite.state.parts import stateful

GroupSettings = list[dict[str, Any]]


def settings_of(optimizer: Optimizer) -> GroupSettings:
    """Copy everything in the groups except the parameters."""
    return [
        {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        for group in optimizer.param_groups
    ]


def give_back(optimizer: Optimizer, settings: GroupSettings) -> None:
    """Restore settings; tensors are written in place, because fused kernels and graphs keep references to them."""
    for group, saved in zip(optimizer.param_groups, settings, strict=False):
        for name, value in saved.items():
            if isinstance(group.get(name), Tensor):
                group[name].copy_(value)
            else:
                group[name] = value


PLAIN = frozenset({int, float, bool, str, type(None)})


class Scheduler(Protocol):
    """A learning-rate scheduler."""

    def step(self) -> object:
        """Advance by one step."""


class Schedule:
    """Advances the scheduler, and undoes it if the step turns out to be refused.

    ``advance`` is for a step known to be accepted. If the verdict is late, ``advance_ahead`` advances and remembers the
    previous state; each ``settle``, in step order, confirms or undoes it.
    """

    def __init__(self, scheduler: Scheduler | None, optimizer: torch.optim.Optimizer) -> None:
        self._scheduler = scheduler
        self._optimizer = optimizer
        self._before: deque[tuple[Any, GroupSettings]] = deque()

    @property
    def rewindable(self) -> bool:
        """Whether an advance can be undone."""
        return self._scheduler is None or stateful(self._scheduler) is not None

    def advance(self) -> None:
        """Advance after an accepted step."""
        if self._scheduler is not None:
            self._scheduler.step()

    def advance_ahead(self) -> None:
        """Advance before the step's verdict is known."""
        if self._scheduler is not None:
            scheduler: Any = self._scheduler
            before = _copied(scheduler.state_dict()), settings_of(self._optimizer)
            scheduler.step()
            self._before.append(before)

    def settle(self, *, refused: bool) -> None:
        """Apply the verdict on the oldest unsettled step."""
        if self._scheduler is None:
            return
        if refused:
            # Undo the last advance: which one does not matter, they are all alike.
            scheduler: Any = self._scheduler
            state, settings = self._before.pop()
            scheduler.load_state_dict(state)
            give_back(self._optimizer, settings)
        else:
            self._before.popleft()

    def forget(self) -> None:
        """Forget unsettled states, after the scheduler was restored."""
        self._before.clear()


def _copied(value: Any) -> Any:
    """Deep copy with a fast path for common scheduler states, since it runs at every step."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        return {name: _copied(each) for name, each in value.items()}
    if kind is list:
        return [_copied(each) for each in value]
    return value.clone() if kind is Tensor else copy.deepcopy(value)


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
        before = [{"lr": settings["lr"]} for settings in settings_of(optimizer)]
        give_back(optimizer, [{"lr": each["lr"] * factor} for each in before])
        try:
            yield
        finally:
            give_back(optimizer, before)

    def state_dict(self) -> dict[str, Any]:
        return {"taken": self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        taken = state.get("taken")
        if taken is not None and not isinstance(taken, int):
            raise StateError(f"not a saved rate cut: {state!r}", fix="pass what state_dict() returned")
        self._taken = taken
