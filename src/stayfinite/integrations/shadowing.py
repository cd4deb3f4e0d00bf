"""Temporarily replace one method of one object."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self


class Shadow:
    """Replaces ``owner.name`` on the object, or within a context; its class and other objects do not change.

    Arguments:
        ours: called instead, with the original method as first argument, then the caller's arguments.
    """

    def __init__(self, owner: object, name: str, ours: Callable[..., Any]) -> None:
        self._own, self._name = vars(owner), name
        self._before = self._own.get(name)
        original = getattr(owner, name)
        self._live = True

        # Keep name, signature and attributes (torch's schedulers look for one on optimizer.step).
        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            return ours(original, *args, **kwargs) if self._live else original(*args, **kwargs)

        self._stand_in = stand_in
        self._own[name] = stand_in

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()

    def lift(self) -> None:
        """Restore the method. If ours was wrapped by others since, it becomes a pass-through."""
        self._live = False
        if self._own.get(self._name) is not self._stand_in:
            return
        if self._before is None:
            del self._own[self._name]
        else:
            self._own[self._name] = self._before


class Disguise:
    """The same for an object that saves its attributes in ``state_dict``, as torch's schedulers do.

    Nothing is added to the object; its class is replaced by one that differs in one method.
    """

    def __init__(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:
        self._owner, self._kind = owner, type(owner)
        original = getattr(owner, name)

        @functools.wraps(getattr(self._kind, name))
        def stand_in(_: object, *args: Any, **kwargs: Any) -> Any:
            return ours(original, *args, **kwargs)

        kept = {each: getattr(self._kind, each) for each in ("__module__", "__qualname__", "__doc__")}
        self._ours = type(self._kind.__name__, (self._kind,), {**kept, name: stand_in})
        owner.__class__ = self._ours

    def lift(self) -> None:
        """Restore the object's class."""
        if type(self._owner) is self._ours:
            self._owner.__class__ = self._kind


class Shadows:
    """Several replacements, restored together, last one first."""

    def __init__(self) -> None:
        self._shadows: list[Shadow | Disguise] = []

    def put(self, owner: object, name: str, ours: Callable[..., Any]) -> None:
        """Replace ``owner.name``."""
        self._shadows.append(Shadow(owner, name, ours))

    def disguise(self, owner: object, name: str, ours: Callable[..., Any]) -> None:
        """Replace ``owner.name`` without a trace in the owner's ``state_dict``."""
        # An attribute on the object itself takes precedence over its class.
        kind = Shadow if name in vars(owner) else Disguise
        self._shadows.append(kind(owner, name, ours))

    def lift(self) -> None:
        """Restore all of them."""
        while self._shadows:
            self._shadows.pop().lift()
