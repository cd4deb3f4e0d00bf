"""Standing in front of one method of one object for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Shadow:
    """Ours in front of ``owner.name``; the class, and every other object of it, stay as they are.

    Arguments:
        owner: the object.
        name: of its method.
        ours: called in its place with the method itself as first argument, then whatever the caller gave.
    """

    def __init__(self, owner: object, name: str, ours: Callable[..., Any]) -> None:
        self._own, self._name = vars(owner), name
        self._before = self._own.get(name)
        original = getattr(owner, name)
        self._live = True

        # Names, signature and marks (torch's schedulers look for one on optimizer.step) are the method's.
        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            return ours(original, *args, **kwargs) if self._live else original(*args, **kwargs)

        self._stand_in = stand_in
        self._own[name] = stand_in

    def lift(self) -> None:
        """Put back what was there. If somebody has put something in front of ours since, ours lets everything pass."""
        self._live = False
        if self._own.get(self._name) is not self._stand_in:
            return
        if self._before is None:
            del self._own[self._name]
        else:
            self._own[self._name] = self._before


class Disguise:
    """The same for an object that writes its own attributes into its ``state_dict``, as torch's schedulers do.

    Nothing is added to the object; for a while it is of a class that differs from its own in one method.
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
        """Give the object its own class back."""
        if type(self._owner) is self._ours:
            self._owner.__class__ = self._kind


class Shadows:
    """Several of them, lifted together, the last one first."""

    def __init__(self) -> None:
        self._shadows: list[Shadow | Disguise] = []

    def put(self, owner: object, name: str, ours: Callable[..., Any]) -> None:
        """Stand in front of ``owner.name``."""
        self._shadows.append(Shadow(owner, name, ours))

    def disguise(self, owner: object, name: str, ours: Callable[..., Any]) -> None:
        """Stand in front of ``owner.name`` without a trace in the owner's ``state_dict``."""
        # What was put on the object itself goes before its class.
        kind = Shadow if name in vars(owner) else Disguise
        self._shadows.append(kind(owner, name, ours))

    def lift(self) -> None:
        """Take all of them away."""
        while self._shadows:
            self._shadows.pop().lift()
