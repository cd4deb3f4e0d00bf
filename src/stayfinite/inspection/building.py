"""``stayfinite check --build my_train:build``: inspect the real training, built by its own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from stayfinite.autopsy.incidents.build import call_build
from stayfinite.errors import UsageError
from stayfinite.inspection.inspection import Inspection
from stayfinite.inspection.preflight import inspect_training

NAMES = ("model", "optimizer", "batch", "forward", "scaler", "scheduler", "loader", "precision", "validation", "metric")
"""Parts that a build may return, in tuple order."""
NEEDED = ("model", "optimizer", "batch")
EXAMPLE = (
    'def build(): ...; return {"model": model, "optimizer": optimizer, "batch": next(iter(loader)), '
    '"forward": lambda batch: model(**batch).loss}'
)


def inspect_build(build: str, *, steps: int = 10, lr_range: bool = False) -> Inspection:
    """Inspect the training that a function builds.

    Arguments:
        build: ``module:function``; the current directory is searched first.
        steps: limit of the learning test.
        lr_range: find the range of learning rates that works.

    Raises:
        UsageError: no such function, it fails, or its result is not a training.
    """
    return inspect_training(**parts_of_build(build), steps=steps, lr_range=lr_range)


def parts_of_build(build: str) -> dict[str, Any]:
    """The parts that a function builds, keyed by `NAMES`; None for missing ones. Raises UsageError if it fails."""
    return _parts(call_build(build, example=EXAMPLE), build)


def _parts(built: Any, named: str) -> dict[str, Any]:
    if isinstance(built, Mapping):
        unknown = [str(name) for name in built if name not in NAMES]
        if unknown:
            raise UsageError(f"--build {named}: unknown key {', '.join(unknown)}", fix=f"use {', '.join(NAMES)}")
        parts = {name: built.get(name) for name in NAMES}
    elif isinstance(built, tuple | list) and not hasattr(built, "_fields"):
        parts = _by_kind(list(built), named)
    else:
        parts = {name: getattr(built, name, None) for name in NAMES}
    if parts["batch"] is None and parts["loader"] is not None:
        parts["batch"] = next(iter(parts["loader"]), None)
    missing = [name for name in NEEDED if parts[name] is None]
    if missing:
        got = f"{type(built).__name__} without {' and '.join(missing)}"
        raise UsageError(f"--build {named}: returned a {got}", fix=EXAMPLE)
    return parts


def _by_kind(built: list[Any], named: str) -> dict[str, Any]:
    """The parts of a tuple: model and optimizer at any position, batch and forward in this order."""
    parts: dict[str, Any] = dict.fromkeys(NAMES)
    rest = []
    for item in built:
        if isinstance(item, nn.Module) and parts["model"] is None:
            parts["model"] = item
        elif isinstance(item, Optimizer) and parts["optimizer"] is None:
            parts["optimizer"] = item
        elif hasattr(item, "is_enabled") and hasattr(item, "unscale_"):
            parts["scaler"] = item
        elif callable(item) and not hasattr(item, "items") and parts["forward"] is None:
            parts["forward"] = item
        else:
            rest.append(item)
    if len(rest) > 1:
        raise UsageError(
            f"--build {named}: {len(rest)} return values could be the batch",
            fix=f"return a dict with names: {EXAMPLE}",
        )
    parts["batch"] = rest[0] if rest else None
    return parts
