"""Files beside the script: configs that it loads or that Hydra composes, and modules that it imports."""

from __future__ import annotations

import ast
import os
import posixpath
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePath

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import plain_name
from stayfinite.errors import UsageError
from stayfinite.readers.configs.course.pages import Pages
from stayfinite.readers.configs.files import as_text, read_content
from stayfinite.readers.configs.literals import parse_json
from stayfinite.readers.configs.program.names import bind, dotted_name, given_argument
from stayfinite.readers.configs.program.state import (
    External,
    Frame,
    Limit,
    Module,
    Origin,
    Row,
    Run,
    Scope,
    Table,
    Unknown,
    Value,
    copied,
)
from stayfinite.readers.configs.scalars import scalar
from stayfinite.readers.configs.script_settings import parse_python
from stayfinite.readers.configs.structured_files import Broken, parse_toml, parse_yaml
from stayfinite.readers.configs.tree import Node

_MOST_BYTES = 256 * 1024
_MOST_FILES = 32
_MOST_VALUES = 20_000
_DEEPEST = 16
_KINDS = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
_REFERENCE = lazy_regex(r"\$\{(?:oc\.env:(\w+),)?([^${}]+)\}")


def loaded(run: Run, path: str, kind: str = "", *, raw: bool = False) -> Value | None:
    """The content of a project file, each value with its line; None if missing or unreadable.

    ``raw``: references to other values stay as they are, because the file is a part of a larger config.
    """
    for place in places(path, run.frame.scope.module.folder):
        known = run.modules.data.get(place)
        if known is None:
            if len(run.modules.data) >= _MOST_FILES:
                return None
            known = _read(place, kind or _KINDS.get(PurePath(place).suffix.lower(), ""))
            run.modules.data[place] = known
        if known.data is not None:
            value = copied(known)
            if not raw:
                _resolve(value, value, 0)
            return value
    return None


def places(path: str, folder: str | None) -> list[str]:
    """Project files that a path may mean, relative to the script or to a folder above it within the project.

    Files elsewhere are never opened: reading a script must not expose other files of the user.
    """
    if folder is None or "\0" in path or not path:
        return []
    found = []
    for root in _roots(folder, os.path.realpath(os.curdir)):
        candidate = os.path.normpath(PurePath(root) / path)
        if os.path.isfile(candidate):  # noqa: PTH113 - asked for every import, and a Path costs more than the question
            real = os.path.realpath(candidate)
            tops = (os.path.realpath(folder or os.curdir), os.path.realpath(os.curdir))
            if any(real.startswith(top.rstrip(os.sep) + os.sep) for top in tops):
                found.append(candidate)
    return found


@lru_cache(maxsize=64)
def _roots(folder: str, here: str) -> list[str]:
    """The folder and those between it and the working directory."""
    home = os.path.realpath(folder or os.curdir)
    if not home.startswith(here + os.sep):
        return [folder]
    between = PurePath(home).relative_to(here).parts
    return [folder, *(str(PurePath(*between[:count])) for count in reversed(range(len(between))))]


def _read(path: str, kind: str) -> Value:
    origin = Origin(path)
    nothing = Value(None, origin)
    try:
        if Path(path).stat().st_size > _MOST_BYTES:
            return nothing
        text = as_text(read_content(path).data)
    except (UsageError, OSError):
        return nothing
    nodes = _parsed(text, kind) if text is not None else []
    if not nodes:
        return nothing
    return _value(nodes[0], origin, 0, Limit(_MOST_VALUES))


def _parsed(text: str, kind: str) -> list[Node]:
    try:
        if kind == "yaml":
            return parse_yaml(text)
        if kind == "json":
            return parse_json(text)[0]
        return [parse_toml(text)] if kind == "toml" else []
    except Broken:
        return []


def _value(node: Node, origin: Origin, depth: int, limit: Limit) -> Value:
    data = node.value
    depth = depth if limit.spend() else _DEEPEST
    if isinstance(data, dict):
        entries = (
            {key: _value(each, origin, depth + 1, limit) for key, each in data.items()} if depth < _DEEPEST else {}
        )
        data = Table(entries)
    elif isinstance(data, list):
        items = [_value(each, origin, depth + 1, limit) for each in data[:1000]] if depth < _DEEPEST else []
        data = Row(items)
    return Value(data, origin, node.line)


def _resolve(value: Value, root: Value, depth: int) -> None:
    """Resolve `${optimizer.lr}`; unresolvable references become unknown."""
    if depth > _DEEPEST:
        return
    if isinstance(value.data, Table):
        for each in value.data.entries.values():
            _resolve(each, root, depth + 1)
    elif isinstance(value.data, Row):
        for each in value.data.items:
            _resolve(each, root, depth + 1)
    elif isinstance(value.data, str) and "${" in value.data:
        found = _REFERENCE.fullmatch(value.data)
        named = _at(root, found.group(2).split(".")) if found and not found.group(1) else None
        if found and found.group(1):
            value.data, value.assumed = scalar(found.group(2).strip()), True
        elif named is not None and named is not value and not (isinstance(named.data, str) and "${" in named.data):
            value.data, value.line, value.origin = named.data, named.line, named.origin
        else:
            value.data = Unknown()


def _at(root: Value, path: list[str]) -> Value | None:
    for step in path:
        inner = root.data.entries.get(step) if isinstance(root.data, Table) else None
        if inner is None:
            return None
        root = inner
    return root


_MOST_NESTED_DEFAULTS = 4


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
                    run.telling.config(found, run.main_line)
                return found
    return None


def composed(run: Run, folder: str, name: str, top: str | None = None, depth: int = 0) -> Value | None:
    """A config with the files of its `defaults` list; those with a `/` are looked for in the ``top`` folder."""
    stem = name if posixpath.splitext(name)[1] in (".yaml", ".yml") else f"{name}.yaml"
    own = loaded(run, posixpath.join(folder, stem), "yaml", raw=True)
    top = folder if top is None else top
    if own is None or not isinstance(own.data, Table) or depth > _MOST_NESTED_DEFAULTS:
        return own
    listed = own.data.entries.pop("defaults", None)
    whole: dict[str, Value] = {}
    for each in listed.data.items if listed is not None and isinstance(listed.data, Row) else []:
        if isinstance(each.data, str) and each.data != "_self_":
            base = composed(run, top if each.data[0] == "/" else folder, each.data.lstrip("/"), top, depth + 1)
            merge(whole, base.data.entries if base is not None and isinstance(base.data, Table) else {})
        elif isinstance(each.data, Table):
            for group, choice in each.data.entries.items():
                _take_group(run, (folder, top), str(group), choice, whole, depth)
    merge(whole, own.data.entries)
    found = Value(Table(whole), own.origin, own.line)
    if depth == 0:
        _resolve(found, found, 0)
    return found


def _take_group(
    run: Run, folders: tuple[str, str], group: str, choice: Value, whole: dict[str, Value], depth: int
) -> None:
    """Merge `optimizer: adamw`, a file of the folder `optimizer`, under its name or as its first line says."""
    group = group.removeprefix("override ").removeprefix("optional ").partition("@")[0]
    folder, group = folders[group.startswith("/")], group.lstrip("/")
    given = given_argument(run, group) or choice
    for each in given.data.items if isinstance(given.data, Row) and "items" in given.data.cell else [given]:
        inside = posixpath.join(folder, group)
        part = composed(run, inside, each.data, folders[1], depth + 1) if isinstance(each.data, str) else None
        if part is None or not isinstance(part.data, Table):
            continue
        nested = part
        for step in () if _is_global(part.origin.source) else reversed(group.split("/")):
            nested = Value(Table({step: nested}), part.origin, part.line)
        merge(whole, nested.data.entries)


def _is_global(path: str) -> bool:
    """Whether a part of a config is merged at its top: `# @package _global_`."""
    try:
        with Path(path).open("rb") as file:
            return b"@package _global_" in file.readline(200)
    except OSError:
        return False


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


MOST_MODULES = 24
_MOST_BYTES_OF_MODULES = 512 * 1024  # of all modules together


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
    for place in _places_of(name, level, here.folder if level else run.frames[0].scope.folder):
        return _read_module(run, place)
    return None


def _places_of(name: str, level: int, folder: str | None) -> Iterator[str]:
    """The files that an imported name may mean."""
    parts = [part for part in name.split(".") if part]
    stem = PurePath(*[os.pardir] * max(level - 1, 0), *parts)
    for candidate in (f"{stem}.py" if parts else "__init__.py", f"{stem}/__init__.py"):
        yield from places(candidate, folder)


def pages_of(run: Run, tree: ast.Module) -> Pages:
    """The script and what it imports of the modules that were read."""
    top = run.frames[0].scope.folder

    def find(module: str, level: int, file: str) -> tuple[str, ast.Module] | None:
        folder = str(PurePath(file).parent) if file and level else top
        for place in _places_of(module, level, folder) if folder is not None and (module or level) else ():
            scope = run.modules.scopes.get(os.path.realpath(place))
            if scope is None or scope.tree is None:
                return None
            parsed = parse_python("\n".join(scope.origin.lines))
            return None if parsed is None else (scope.origin.source, parsed.tree)
        return None

    return Pages(tree, find) if run.modules.scopes else Pages(tree)


def _read_module(run: Run, path: str) -> Scope | None:
    real = os.path.realpath(path)
    if real in run.modules.scopes:
        return run.modules.scopes[real]
    if len(run.modules.scopes) >= MOST_MODULES:
        return None
    try:
        run.modules.size += Path(path).stat().st_size
        if run.modules.size > _MOST_BYTES_OF_MODULES:
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
