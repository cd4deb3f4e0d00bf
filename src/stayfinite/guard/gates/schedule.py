"""The learning-rate schedule, which does not advance at a refused step even if the refusal is known late."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, Protocol

import torch
from torch import Tensor

from stayfinite.guard.gates.group_settings import GroupSettings, give_back, settings_of

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
        return self._scheduler is None or (
            hasattr(self._scheduler, "state_dict") and hasattr(self._scheduler, "load_state_dict")
        )

    def advance(self) -> None:
        """Advance after an accepted step."""
        if self._scheduler is not None:
            self._scheduler.step()

    def advance_ahead(self) -> None:
        """Advance before the step's verdict is known."""
        if self._scheduler is not None:
            before = self._remember(self._scheduler)
            self._scheduler.step()
            self._before.append(before)

    def settle(self, *, refused: bool) -> None:
        """Apply the verdict on the oldest unsettled step."""
        if self._scheduler is None:
            return
        if refused:
            # Undo the last advance: which one does not matter, they are all alike.
            self._restore(self._scheduler, self._before.pop())
        else:
            self._before.popleft()

    def forget(self) -> None:
        """Forget unsettled states, after the scheduler was restored."""
        self._before.clear()

    def _remember(self, scheduler: Any) -> tuple[Any, GroupSettings]:
        return _copied(scheduler.state_dict()), settings_of(self._optimizer)

    def _restore(self, scheduler: Any, before: tuple[Any, GroupSettings]) -> None:
        state, settings = before
        scheduler.load_state_dict(state)
        give_back(self._optimizer, settings)


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
