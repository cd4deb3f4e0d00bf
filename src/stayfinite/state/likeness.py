"""Check that a saved state belongs to a training: same parts, names, shapes and dtypes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from stayfinite.errors import StateError
from stayfinite.state.frozen import check_frozen
from stayfinite.state.graft import fits
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
    left_out = parts.left_out()
    check_frozen(tree.get("frozen"), list(left_out), None if parts.keep_frozen else parts.frozen_mark.of(left_out))
    live_model = parts.parameters() | parts.buffers()
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
            f"the saved state is from another architecture: {len(odd)} tensors differ in shape or dtype: {_some(odd)}",
            fix="build the same model as the saved run, or start without the state",
        )


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
        words.append(f"{len(missing)} of this training are not in it: {_some(missing)}")
    if unknown:
        words.append(f"{len(unknown)} in it are not in this training: {_some(unknown)}")
    raise StateError(
        f"the saved state is from another architecture ({what}): {'; '.join(words)}",
        fix="build the same model as the saved run, or start without the state",
    )


def _form(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
