"""``--build my_train:build``: the function that returns model and forward pass of a training."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from stayfinite.errors import UsageError

EXAMPLE = "def build(): ...; return model, lambda batch: model(**batch).loss"


def load_build(named: str | None, incident: Path) -> tuple[Any, Callable[[Any], Any]]:
    """Model and forward function for an incident.

    Arguments:
        named: ``module:function``; the current directory is searched first.
        incident: its run.json may name a recipe, which needs no ``named``.

    Raises:
        UsageError: no such function, it fails, or returns something else.
    """
    if named is not None:
        return _parts(call_build(named), named)
    run = incident.resolve().parent.parent
    recipe = _of_recipe(run)
    return _parts(call_build(recipe, run), recipe)


def call_build(named: str, *arguments: Any, example: str = EXAMPLE) -> Any:
    """Call ``module:function``; the current directory is searched first.

    Arguments:
        arguments: its arguments: none, or the run directory for a recipe.
        example: a valid function, for the error.

    Raises:
        UsageError: no such function, or it fails.
    """
    module_name, _, function_name = named.partition(":")
    if not module_name or not function_name.isidentifier():
        raise UsageError(f"--build {named}: expected module:function", fix="--build my_train:build")
    function = _function(module_name, function_name, example)
    try:
        return function(*arguments)
    except UsageError:
        raise
    except Exception as error:
        place = _place(error)
        raise UsageError(
            f"--build {named} failed with {type(error).__name__}{place}: {error}",
            fix=f"fix {function_name}; it is called without arguments" if place and not arguments else example,
        ) from error


def _function(module_name: str, function_name: str, example: str) -> Callable[..., Any]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UsageError(
            f"--build: cannot import {module_name}: {type(error).__name__}{_place(error)}: {error}",
            fix=f"run the command where {module_name.partition('.')[0]}.py is; keep training behind "
            "`if __name__ == '__main__':`",
        ) from error
    finally:
        if here in sys.path:
            sys.path.remove(here)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"--build: {module_name} has no function {function_name!r}", fix=example)
    found: Callable[..., Any] = function
    return found


def _place(error: BaseException) -> str:
    """` at my_train.py:17`, the last line of the user's code before an error; empty if there is none."""
    here = Path.cwd()
    own = [
        f" at {Path(frame.filename).relative_to(here)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(here) and "site-packages" not in frame.filename
    ]
    return own[-1] if own else ""


def _parts(built: Any, named: str) -> tuple[Any, Callable[[Any], Any]]:
    if isinstance(built, Mapping):
        model, forward = built.get("model"), built.get("forward")
    elif isinstance(built, tuple | list) and len(built) == 2:
        model, forward = built
    else:
        model, forward = getattr(built, "model", None), getattr(built, "forward", None)
    if not isinstance(model, nn.Module) or not callable(forward):
        raise UsageError(
            f"--build {named}: must return a model and forward(batch) -> loss, not {type(built).__name__}",
            fix=EXAMPLE,
        )
    return model, forward


def _of_recipe(run: Path) -> str:
    """Build function of the recipe that made the run."""
    try:
        record = json.loads((run / "run.json").read_text(encoding="utf-8"))
        recipe = str(record.get("recipe") or "")
    except (OSError, ValueError, AttributeError):
        recipe = ""
    if not recipe.isidentifier():
        raise UsageError(
            ("the run does not record how to build its model"),
            fix=f"--build my_train:build, with {EXAMPLE} in my_train.py",
        )
    return f"stayfinite.recipes.{recipe}:build"
