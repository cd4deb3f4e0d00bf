"""Replace functions and attributes of objects, classes and modules for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

ABSENT: Any = object()


class StandIns:
    """What was replaced; ``off``, or the end of a context, restores it, last first. Other objects do not change."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def keep(self, undo: Callable[[], None]) -> None:
        """Register a callback for ``off``, such as the ``remove`` of a torch hook."""
        self._undo.append(undo)

    def put(self, owner: Any, name: str, ours: Callable[..., Any]) -> Self:
        """Replace ``owner.name`` with ``ours(original, *args, **kwargs)``.

        If others have wrapped ours by the time it is restored, it becomes a pass-through.
        """
        original, before = getattr(owner, name), vars(owner).get(name, ABSENT)
        live = True

        # Keep name, signature and attributes (torch's schedulers look for one on optimizer.step).
        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            return ours(original, *args, **kwargs) if live else original(*args, **kwargs)

        def undo() -> None:
            nonlocal live
            live = False
            if vars(owner).get(name) is stand_in:
                _write(owner, name, before)

        _write(owner, name, stand_in)
        self.keep(undo)
        return self

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name``."""
        self.keep(functools.partial(_write, owner, name, vars(owner).get(name, ABSENT)))
        _write(owner, name, value)

    def disguise(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:
        """Replace ``owner.name`` without a trace in ``state_dict``, where torch's schedulers save their attributes.

        Nothing is added to the object; its class is replaced by one that differs in one method.
        """
        if name in vars(owner):  # an attribute on the object itself takes precedence over its class
            self.put(owner, name, ours)
            return
        kind, original = type(owner), getattr(owner, name)

        @functools.wraps(getattr(kind, name))
        def stand_in(_: object, *args: Any, **kwargs: Any) -> Any:
            return ours(original, *args, **kwargs)

        kept = {each: getattr(kind, each) for each in ("__module__", "__qualname__", "__doc__")}
        disguised = type(kind.__name__, (kind,), {**kept, name: stand_in})

        def undo() -> None:
            if type(owner) is disguised:
                owner.__class__ = kind

        owner.__class__ = disguised
        self.keep(undo)

    def off(self) -> None:
        """Restore everything, last first. Safe to call twice."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.off()


def _write(owner: Any, name: str, value: Any) -> None:
    """Set an attribute of the owner itself, or delete it."""
    if not isinstance(owner, type):
        if value is ABSENT:
            vars(owner).pop(name, None)
        else:
            vars(owner)[name] = value
    elif value is ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
