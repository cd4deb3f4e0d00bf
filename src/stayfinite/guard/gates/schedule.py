"""The learning-rate schedule, which must stand still at a refused step even when the refusal is heard of late."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, Protocol

import torch
from torch import Tensor

from stayfinite.guard.gates.group_settings import GroupSettings, give_back, settings_of

PLAIN = frozenset({int, float, bool, str, type(None)})


class Scheduler(Protocol):
    """What the guard needs of a learning-rate scheduler."""

    def step(self) -> object:
        """Move on by one step."""


class Schedule:
    """Advances the scheduler, and takes an advance back when its step turns out to have been refused.

    ``advance`` is for a step that is known to be accepted. Where the verdict arrives late, ``advance_ahead`` moves on
    in good faith and remembers how things were; each ``settle``, in the order of the steps, then confirms or takes
    back.
    """

    def __init__(self, scheduler: Scheduler | None, optimizer: torch.optim.Optimizer) -> None:
        self._scheduler = scheduler
        self._optimizer = optimizer
        self._before: deque[tuple[Any, GroupSettings]] = deque()

    @property
    def rewindable(self) -> bool:
        """Whether an advance can be taken back."""
        return self._scheduler is None or (
            hasattr(self._scheduler, "state_dict") and hasattr(self._scheduler, "load_state_dict")
        )

    def advance(self) -> None:
        """Move on after an accepted step."""
        if self._scheduler is not None:
            self._scheduler.step()

    def advance_ahead(self) -> None:
        """Move on before the step's verdict is known."""
        if self._scheduler is not None:
            before = self._remember(self._scheduler)
            self._scheduler.step()
            self._before.append(before)

    def settle(self, *, refused: bool) -> None:
        """The verdict on the oldest step that was advanced ahead."""
        if self._scheduler is None:
            return
        if refused:
            # One advance too many was made since; which of them does not matter, they are all alike.
            self._restore(self._scheduler, self._before.pop())
        else:
            self._before.popleft()

    def forget(self) -> None:
        """The scheduler was put back to another state: what was remembered of it no longer counts."""
        self._before.clear()

    def _remember(self, scheduler: Any) -> tuple[Any, GroupSettings]:
        return _copied(scheduler.state_dict()), settings_of(self._optimizer)

    def _restore(self, scheduler: Any, before: tuple[Any, GroupSettings]) -> None:
        state, settings = before
        scheduler.load_state_dict(state)
        give_back(self._optimizer, settings)


def _copied(value: Any) -> Any:
    """A deep copy; at once for what a scheduler's state is nearly always made of, since it is made at every step."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        return {name: _copied(each) for name, each in value.items()}
    if kind is list:
        return [_copied(each) for each in value]
    return value.clone() if kind is Tensor else copy.deepcopy(value)
