"""Hydra: the config that `@hydra.main` passes to a function, composed from its files."""

from __future__ import annotations

import ast
import posixpath

from stayfinite.core.settings import plain_name
from stayfinite.readers.configs.program.data_files import loaded
from stayfinite.readers.configs.program.given import given_argument
from stayfinite.readers.configs.program.names import dotted_name
from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.values import Row, Table, Value

_DEEPEST = 4


def config_of_main(run: Run, function: ast.FunctionDef) -> Value | None:
    """The config of a function under `@hydra.main`; None for another function or if files are missing."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and dotted_name(decorator.func, {}).endswith("main"):
            said = {each.arg: run.evaluate(run, each.value).data for each in decorator.keywords if each.arg is not None}
            folder, name = said.get("config_path"), said.get("config_name")
            if isinstance(name, str):
                found = composed(run, folder if isinstance(folder, str) else "", name)
                if found is not None:
                    _override(run, found, "", 0)
                return found
    return None


def composed(run: Run, folder: str, name: str, depth: int = 0) -> Value | None:
    """A config with the files of its `defaults` list."""
    stem = name if posixpath.splitext(name)[1] in (".yaml", ".yml") else f"{name}.yaml"
    own = loaded(run, posixpath.join(folder, stem), "yaml")
    if own is None or not isinstance(own.data, Table) or depth > _DEEPEST:
        return own
    listed = own.data.entries.pop("defaults", None)
    whole: dict[str, Value] = {}
    for each in listed.data.items if listed is not None and isinstance(listed.data, Row) else []:
        if isinstance(each.data, str) and each.data != "_self_":
            base = composed(run, folder, each.data, depth + 1)
            merge(whole, base.data.entries if base is not None and isinstance(base.data, Table) else {})
        elif isinstance(each.data, Table):
            for group, choice in each.data.entries.items():
                _take_group(run, folder, str(group), choice, whole, depth)
    merge(whole, own.data.entries)
    return Value(Table(whole), own.origin, own.line)


def _take_group(run: Run, folder: str, group: str, choice: Value, whole: dict[str, Value], depth: int) -> None:
    group = group.removeprefix("override ").removeprefix("optional ").lstrip("/").partition("@")[0]
    given = given_argument(run, group)
    chosen = given.data if given is not None else choice.data
    part = composed(run, posixpath.join(folder, group), chosen, depth + 1) if isinstance(chosen, str) else None
    if part is None:
        return
    nested = part
    for step in reversed(group.split("/")):
        nested = Value(Table({step: nested}), part.origin, part.line)
    merge(whole, nested.data.entries)


def merge(into: dict[str, Value], more: dict[str, Value]) -> None:
    """Merge tables recursively; later values win."""
    for key, value in more.items():
        before = into.get(key)
        if before is not None and isinstance(before.data, Table) and isinstance(value.data, Table):
            inner = dict(before.data.entries)
            merge(inner, value.data.entries)
            into[key] = Value(Table(inner), value.origin, value.line)
        else:
            into[key] = value


def _override(run: Run, value: Value, path: str, depth: int) -> None:
    """Apply `optimizer.lr=1e-3` to the values, or `model=large` to a config group."""
    if not isinstance(value.data, Table) or depth > 8 or not run.surroundings.arguments:
        return
    for key, each in value.data.entries.items():
        name = f"{path}.{key}" if path else str(key)
        given = None if isinstance(each.data, Table) else given_argument(run, plain_name(name))
        if given is not None:
            value.data.entries[key] = given
        else:
            _override(run, each, name, depth + 1)
