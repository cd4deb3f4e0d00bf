"""Methods of single objects, exchanged for a time and put back."""

from __future__ import annotations

from typing import Any

ABSENT = object()


class Patches:
    """What was exchanged on which object, so that all of it can be undone. Classes are never touched."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Give one object another attribute of its own."""
        self._before.append((owner, name, vars(owner).get(name, ABSENT)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back, the last first. Doing it twice is fine."""
        while self._before:
            owner, name, before = self._before.pop()
            if before is not ABSENT:
                setattr(owner, name, before)
            elif name in vars(owner):
                delattr(owner, name)
