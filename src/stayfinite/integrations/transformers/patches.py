"""Temporarily replace methods of single objects."""

from __future__ import annotations

from typing import Any

ABSENT = object()


class Patches:
    """Replaced attributes, so all can be restored. Classes are never changed."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute of one object."""
        self._before.append((owner, name, vars(owner).get(name, ABSENT)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Restore everything, last one first. Safe to call twice."""
        while self._before:
            owner, name, before = self._before.pop()
            if before is not ABSENT:
                setattr(owner, name, before)
            elif name in vars(owner):
                delattr(owner, name)
