"""Several learning-rate schedules as one, so a rollback restores all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Schedules:
    """Schedulers that a framework steps."""

    def __init__(self, schedulers: Sequence[Any]) -> None:
        self._schedulers = list(schedulers)

    @classmethod
    def of(cls, schedulers: Sequence[Any]) -> Any:
        """None for none, a single one itself, otherwise a combination."""
        return cls(schedulers) if len(schedulers) > 1 else next(iter(schedulers), None)

    def state_dict(self) -> dict[str, Any]:
        return {str(number): each.state_dict() for number, each in enumerate(self._schedulers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for number, each in enumerate(self._schedulers):
            each.load_state_dict(state[str(number)])
