"""The learning rate: the schedule, which does not advance at a refused step even if the refusal is known late; a cut
that it never sees; and the settings of an optimizer's groups.

Many schedulers compute the next learning rate from the current one, so a permanent change in the optimizer would
distort the schedule. A cut is applied only around the optimizer's step.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping
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

    Arguments:
        stepped_outside: called once, where the scheduler has moved on between two advances.
    """

    def __init__(
        self,
        scheduler: Scheduler | None,
        optimizer: torch.optim.Optimizer,
        stepped_outside: Callable[[], None] = lambda: None,
    ) -> None:
        self._scheduler = scheduler
        self._optimizer = optimizer
        self._before: deque[tuple[Any, GroupSettings]] = deque()
        self._stepped_outside: Callable[[], None] | None = stepped_outside
        self._left_at: tuple[int, object] | None = None
        """Where the last advance left the scheduler."""

    @property
    def rewindable(self) -> bool:
        """Whether an advance can be undone."""
        return self._scheduler is None or stateful(self._scheduler) is not None

    def advance(self) -> None:
        """Advance after an accepted step."""
        if self._scheduler is not None:
            self._look_for_others()
            self._scheduler.step()
            self._left_at = _position(self._scheduler)

    def advance_ahead(self) -> None:
        """Advance before the step's verdict is known."""
        if self._scheduler is not None:
            scheduler: Any = self._scheduler
            self._look_for_others()
            before = _copied(scheduler.state_dict()), settings_of(self._optimizer)
            scheduler.step()
            self._left_at = _position(scheduler)
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
            self._left_at = _position(scheduler)
        else:
            self._before.popleft()

    def forget(self) -> None:
        """Forget unsettled states, after the scheduler was restored."""
        self._before.clear()
        self._left_at = None

    def _look_for_others(self) -> None:
        """Report a scheduler that the loop steps too; one whose state was loaded meanwhile is fine."""
        if self._stepped_outside is None or self._left_at is None:
            return
        now = _position(self._scheduler)
        if now is not None and now[0] > self._left_at[0] and now[1] is self._left_at[1]:
            tell, self._stepped_outside = self._stepped_outside, None
            tell()


def _position(scheduler: object) -> tuple[int, object] | None:
    """Steps of one of torch's schedulers, and a list in it that is replaced where a state is loaded."""
    steps = getattr(scheduler, "last_epoch", None)
    return (steps, getattr(scheduler, "base_lrs", None)) if isinstance(steps, int) else None


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
