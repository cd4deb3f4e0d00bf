"""Lightning has two package names, ``lightning`` and ``pytorch_lightning``, with separate classes."""

import functools
import importlib
import sys
from importlib.util import find_spec
from typing import Any

from stayfinite.errors import MissingExtra

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def callback_classes() -> tuple[type, ...]:
    """``Callback`` classes of the loaded Lightnings; of the installed one if none is loaded.

    Raises:
        MissingExtra: Lightning is not installed.
    """
    used = [name for name in PACKAGES if name in sys.modules]
    found = used or [name for name in PACKAGES if find_spec(name.partition(".")[0]) is not None][:1]
    if not found:
        raise MissingExtra.of("lightning", extra="lightning", what_for="stayfinite.integrations.lightning")
    return tuple(importlib.import_module(name).Callback for name in found)


@functools.cache
def as_callback(kind: Any, callbacks: tuple[type, ...]) -> Any:
    """The class as a callback of a framework, or of both Lightnings."""
    kept = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind, *callbacks), kept)


def rebuild(kind: type, state: dict[str, Any]) -> Any:
    """Unpickle a callback, in a process that may use another Lightning."""
    made: Any = object.__new__(as_callback(kind, callback_classes()))
    made.__dict__.update(state)
    return made
