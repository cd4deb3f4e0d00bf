"""Imports: modules next to the script are followed, others are library names."""

from __future__ import annotations

import ast
import os
from pathlib import Path, PurePath

from stayfinite.errors import UsageError
from stayfinite.readers.configs.files import as_text, read_content
from stayfinite.readers.configs.program.data_files import places
from stayfinite.readers.configs.program.names import bind
from stayfinite.readers.configs.program.state import Frame, Run, Scope
from stayfinite.readers.configs.program.values import External, Module, Origin, Value
from stayfinite.readers.configs.script_settings import parse_python

MOST_MODULES = 24
_MOST_BYTES = 512 * 1024  # of all modules together


class Modules:
    """Project modules read so far."""

    def __init__(self) -> None:
        self.scopes: dict[str, Scope] = {}
        self.data: dict[str, Value] = {}
        self.size = 0


def follow_import(run: Run, statement: ast.Import) -> bool:
    """`import config`, `import torch.nn.functional as F`."""
    for each in statement.names:
        found = _module(run, each.name, 0)
        if found is None:
            name = each.name if each.asname else each.name.partition(".")[0]
            bind(run, each.asname or name, run.value(External(name, name), statement))
        elif each.asname or "." not in each.name:
            bind(run, each.asname or each.name, run.value(Module(found.names), statement))
        else:
            _bind_path(run, each.name, found, statement)
    return False


def follow_import_from(run: Run, statement: ast.ImportFrom) -> bool:
    """`from settings import LR`, `from .helpers import *`."""
    source = statement.module or ""
    found = _module(run, source, statement.level)
    for each in statement.names:
        if each.name == "*":
            for name, value in list(found.names.items()) if found is not None else []:
                if not name.startswith("_"):
                    bind(run, name, value)
            continue
        known = found.names.get(each.name) if found is not None else None
        if known is not None:
            bind(run, each.asname or each.name, known)
        else:
            inner = _module(run, f"{source}.{each.name}" if source else each.name, statement.level)
            full = f"{source}.{each.name}" if source else each.name
            value = run.value(External(each.name, full) if inner is None else Module(inner.names), statement)
            bind(run, each.asname or each.name, value)
    return False


def _bind_path(run: Run, path: str, found: Scope, statement: ast.Import) -> None:
    """`import models.loading`: binds `models`, with `loading` in it."""
    first, *rest = path.split(".")
    outer = _module(run, first, 0)
    names = outer.names if outer is not None else {}
    bind(run, first, run.value(Module(names), statement))
    for step in rest[:-1]:
        inner: dict[str, Value] = {}
        names[step] = run.value(Module(inner), statement)
        names = inner
    names[rest[-1]] = run.value(Module(found.names), statement)


def _module(run: Run, name: str, level: int) -> Scope | None:
    """The scope of a project module, evaluated on first import."""
    here = run.frame.scope.module
    parts = [part for part in name.split(".") if part]
    if here.folder is None or run.spent or (not parts and not level):
        return None
    up = [os.pardir] * max(level - 1, 0)
    stem = PurePath(*up, *parts)
    for candidate in (f"{stem}.py" if parts else "__init__.py", f"{stem}/__init__.py"):
        folder = here.folder if level else run.frames[0].scope.folder
        for place in places(candidate, folder):
            return _read(run, place)
    return None


def _read(run: Run, path: str) -> Scope | None:
    real = os.path.realpath(path)
    if real in run.modules.scopes:
        return run.modules.scopes[real]
    if len(run.modules.scopes) >= MOST_MODULES:
        return None
    try:
        run.modules.size += Path(path).stat().st_size
        if run.modules.size > _MOST_BYTES:
            return None
        text = as_text(read_content(path).data)
    except (UsageError, OSError):
        return None
    parsed = parse_python(text) if text is not None else None
    if parsed is None or text is None:
        return None
    scope = Scope(Origin(path, text.split("\n")), folder=str(PurePath(path).parent), tree=parsed.tree)
    run.modules.scopes[real] = scope  # before evaluation: two modules may import each other
    with run.inside(Frame(scope)), run.store.outside():
        run.execute(run, parsed.tree.body)
    return scope
