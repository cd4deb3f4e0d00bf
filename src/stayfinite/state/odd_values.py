"""Reject checkpoints with invalid values, changed by hand or by a fault."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from stayfinite.errors import StateError


@contextmanager
def refusing_odd_values(path: Path) -> Iterator[None]:
    """Context that turns errors from invalid values into a message.

    Raises:
        StateError: instead of the Python error.
    """
    try:
        yield
    except StateError:
        raise
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
        raise StateError(
            f"cannot use {path.name}: invalid value ({type(error).__name__}: {error})",
            fix=f"move {path} away; the previous checkpoint is used then",
        ) from error


def check_values(saved: Mapping[str, Any], live: list[dict[str, Any]]) -> None:
    """Reject an optimizer state that would load, but fail in a later step.

    Raises:
        StateError: the message names the value.
    """
    for index, (theirs, ours) in enumerate(zip(saved["groups"], live, strict=True)):
        for key, value in theirs.items():
            if key != "params" and key in ours and not _alike(value, ours[key]):
                raise _odd(f"{key} of parameter group {index}", value)
    entries: dict[str, Any] = saved["state"]
    tensors = {key for each in entries.values() for key, value in each.items() if isinstance(value, Tensor)}
    for name, each in entries.items():
        others = {key for other, keys in entries.items() if other != name for key in keys}
        if others and others.isdisjoint(each):
            raise _odd(f"the optimizer's state of {name}", sorted(each))
        for key, value in each.items():
            if key in tensors and not isinstance(value, Tensor):
                raise _odd(f"{key} of {name}", value)


def _alike(saved: Any, live: Any) -> bool:
    """Whether one setting can replace the other."""
    if live is None or saved is live:
        return True
    if isinstance(live, bool | str) or isinstance(saved, bool | str):
        return type(saved) is type(live)
    if isinstance(live, int | float | Tensor):
        number = isinstance(saved, int | float) and math.isfinite(saved)
        return number or isinstance(saved, Tensor)
    if isinstance(live, tuple | list):
        return isinstance(saved, tuple | list) and len(saved) == len(live) and all(map(_alike, saved, live))
    return True


def _odd(what: str, value: Any) -> StateError:
    shown = repr(value)
    return StateError(
        f"{what} is {shown[:60]}{'…' if len(shown) > 60 else ''} in the saved state",
        fix="resume from an older checkpoint: move this one away",
    )
