"""Standing in front of functions, and leaving no trace."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class StandIns:
    """Functions that are met before those of torch; ``off`` puts everything back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def keep(self, undo: Callable[[], None]) -> None:
        """Call this at the end as well."""
        self._undo.append(undo)

    def put(self, owner: Any, name: str, meet: Callable[..., Any]) -> None:
        """``meet(original, *args, **kwargs)`` is called in the place of a function."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            return meet(original, *args, **kwargs)

        self.replace(owner, name, stand_in)

    def replace(self, owner: Any, name: str, other: Any) -> None:
        """Another function stands in the place of one."""
        original = getattr(owner, name)
        own = name in vars(owner)
        setattr(owner, name, other)

        def undo() -> None:
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

        self._undo.append(undo)

    def off(self) -> None:
        """Put everything back, the last first."""
        while self._undo:
            self._undo.pop()()
