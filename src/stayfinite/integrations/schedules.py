"""Several learning-rate schedules as one, so that a rollback takes all of them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Schedules:
    """Schedulers that a framework moves."""

    def __init__(self, schedulers: Sequence[Any]) -> None:
        self._schedulers = list(schedulers)

    @classmethod
    def of(cls, schedulers: Sequence[Any]) -> Any:
        """None of none, a single one itself, otherwise all of them as one."""
        return cls(schedulers) if len(schedulers) > 1 else next(iter(schedulers), None)

    def state_dict(self) -> dict[str, Any]:
        """Of each, in their order."""
        return {str(number): each.state_dict() for number, each in enumerate(self._schedulers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there."""
        for number, each in enumerate(self._schedulers):
            each.load_state_dict(state[str(number)])
