"""Temporary function replacements."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class StandIns:
    """Replaces functions of torch; ``off`` restores them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def keep(self, undo: Callable[[], None]) -> None:
        """Register a callback for ``off``."""
        self._undo.append(undo)

    def put(self, owner: Any, name: str, meet: Callable[..., Any]) -> None:
        """Replace a function with ``meet(original, *args, **kwargs)``."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            return meet(original, *args, **kwargs)

        self.replace(owner, name, stand_in)

    def replace(self, owner: Any, name: str, other: Any) -> None:
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
        """Restore everything, last first."""
        while self._undo:
            self._undo.pop()()
