"""Check that a saved state belongs to a training: same parts, names, shapes and dtypes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from stayfinite.errors import StateError
from stayfinite.state.frozen import check_frozen
from stayfinite.state.moments import fits
from stayfinite.state.parts import TrainingParts
from stayfinite.state.shards import local_part

SHOWN = 5
"""Names listed in an error before the rest is counted."""


def check_likeness(parts: TrainingParts, tree: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Reject a state of another architecture.

    Raises:
        StateError: the message names missing, unknown and mismatched tensors.
    """
    try:
        saved_model = {*tree["parameters"], *tree["buffers"]}
        saved_averages, saved_extra = set(tree["averages"]), set(tree["extra"])
    except (KeyError, TypeError) as error:
        raise StateError(f"not a training state: {type(error).__name__}: {error}") from error
    check_frozen(tree.get("frozen"), None if parts.keep_frozen else parts.left_out(), parts.frozen_mark)
    live_model = restorable(parts, tree) | parts.buffers()
    _check_names("model", saved_model, set(live_model))
    _check_names("averaged weights", saved_averages, set(parts.averages()))
    _check_names("extra parts", saved_extra, set(parts.extra))
    if (tree.get("scheduler") is None) != (parts.scheduler is None):
        have, lack = ("the saved state", "this training") if parts.scheduler is None else ("this training", "it")
        raise StateError(
            f"{have} has a scheduler, {lack} has none", fix=("resume with the same parts as the saved run")
        )
    odd = []
    for prefix, live in (("model", live_model), ("ema", parts.averages())):
        for name, tensor in live.items():
            saved = tensors.get(f"{prefix}.{name}")
            if saved is None:
                odd.append(f"{name} (values missing)")
            elif not fits(tensor, saved):
                odd.append(f"{name} (saved {_form(saved)}, here {_form(local_part(tensor))})")
    if odd:
        raise StateError(
            f"the saved state is from another architecture: {len(odd)} tensors differ in shape or dtype: {some(odd)}",
            fix="build the same model as the saved run, or start without the state",
        )


def restorable(parts: TrainingParts, tree: Mapping[str, Any]) -> dict[str, Tensor]:
    """Live parameters that a saved state should have: all but those it leaves out."""
    without = set((tree.get("frozen") or {"names": ()})["names"])
    return {name: parameter for name, parameter in parts.named().items() if name not in without}


def keys_digest(tree: Mapping[str, Any], forms: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    """Fingerprint of an architecture: names, shapes and dtypes of parameters and buffers.

    Arguments:
        forms: full shape and dtype of each tensor by name.
    """
    names = sorted({*tree["parameters"], *tree["buffers"]})
    lines = [f"{name} {list(forms[f'model.{name}'][0])} {forms[f'model.{name}'][1]}" for name in names]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _check_names(what: str, saved: set[str], live: set[str]) -> None:
    missing, unknown = sorted(live - saved), sorted(saved - live)
    if not missing and not unknown:
        return
    words = []
    if missing:
        words.append(f"{len(missing)} of this training are not in it: {some(missing)}")
    if unknown:
        words.append(f"{len(unknown)} in it are not in this training: {some(unknown)}")
    raise StateError(
        f"the saved state is from another architecture ({what}): {'; '.join(words)}",
        fix="build the same model as the saved run, or start without the state",
    )


def _form(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def some(names: list[str]) -> str:
    """The first names, and how many follow."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


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


def check_schedule(saved: Any, scheduler: Any) -> None:
    """Reject a state of one of torch's schedulers that would load, but fail in a later step.

    Raises:
        StateError: the message names the value.
    """
    if not isinstance(scheduler, LRScheduler) or not type(scheduler).__module__.startswith("torch."):
        return  # what another one holds may change its kind
    if not isinstance(saved, Mapping):
        raise _odd("the scheduler", saved)
    for key, ours in scheduler.state_dict().items():
        number = isinstance(ours, int | float) and not isinstance(ours, bool)
        if (
            number
            and key in saved
            and (isinstance(saved[key], bool) or not isinstance(saved[key], int | float | Tensor))
        ):
            raise _odd(f"{key} of the scheduler", saved[key])


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
