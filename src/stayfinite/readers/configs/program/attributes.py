"""Read and assign `holder.name` and `holder[key]`."""

from __future__ import annotations

import ast
import math
import posixpath
from typing import Any

from stayfinite.readers.configs.program.given import environment_value
from stayfinite.readers.configs.program.names import declared_default, tell_of
from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.values import (
    Class,
    External,
    Function,
    Instance,
    Made,
    Method,
    Module,
    OpenFile,
    Parser,
    Row,
    Super,
    Table,
    Unknown,
    Value,
)
from stayfinite.readers.configs.scalars import dtype_name, scalar

_INFINITE = frozenset({"math.inf", "numpy.inf", "torch.inf", "np.inf"})
_OF_TEXT = {
    "type": lambda text: text.partition(":")[0],  # torch.device("cuda:0")
    "value": lambda text: text,  # an Enum member
    "parent": posixpath.dirname,
    "name": posixpath.basename,
    "stem": lambda text: posixpath.splitext(posixpath.basename(text))[0],
}
_MOST_BASES = 32
RETURN_THEMSELVES = frozenset(
    {"to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "requires_grad_", "apply", "compile"}
)
"""torch module methods that return the module."""
INHERITED = RETURN_THEMSELVES | {"save_hyperparameters"}


def attribute(run: Run, base: Value, name: str, node: ast.AST) -> Value:
    """The value of `base.name`."""
    data = base.data
    if isinstance(data, External):
        return _of_library(run, data, name, node)
    found = _found(run, base, name, node)
    if found is not None and isinstance(found.data, Made):
        tell_of(found.data)
    if found is not None:
        return run.unknown(node, found.data.least) if isinstance(found.data, Unknown) else found
    if isinstance(data, Instance) and name in INHERITED:
        return run.value(Method(base, name), node)
    if isinstance(data, (Unknown, Instance, Made)):
        return declared_default(run, name) or run.unknown(node)
    if isinstance(data, str) and name in _OF_TEXT:
        return Value(_OF_TEXT[name](data), base.origin, base.line, base.node, base.assumed)
    if isinstance(data, (Table, Row, str, Parser, OpenFile)):
        return run.value(Method(base, name), node)
    return run.unknown(node)


def _found(run: Run, base: Value, name: str, node: ast.AST) -> Value | None:
    data = base.data
    if isinstance(data, Module):
        return data.names.get(name)
    if isinstance(data, Table):
        return data.entries.get(name)
    if isinstance(data, Made):
        return data.attributes.get(name)
    if isinstance(data, Instance):
        if name in data.attributes:
            return data.attributes[name]
        if name == "__dict__":
            return run.value(Table(data.attributes), node)  # not a copy: `self.__dict__.update(kwargs)`
        found = look_up(data.of, name)
        return None if found is None else _bound(run, found, base, node)
    if isinstance(data, Class):
        return look_up(data, name)
    if isinstance(data, Super):
        for parent in data.of.bases:
            found = look_up(parent.data, name) if isinstance(parent.data, Class) else None
            if found is not None:
                return _bound(run, found, data.instance, node)
    return None


def _bound(run: Run, found: Value, instance: Value, node: ast.AST) -> Value:
    function = found.data
    if isinstance(function, Function) and "staticmethod" not in function.kinds:
        bound = Function(function.node, function.scope, function.defaults, function.owner, instance, function.kinds)
        value = Value(bound, found.origin, found.line, found.node)
        if function.kinds & {"property", "cached_property"} and isinstance(node, ast.expr):
            return run.call(run, value, [], {}, node)
        return value
    if isinstance(instance.data, Instance) and instance.data.assumed and not found.assumed:
        return Value(found.data, found.origin, found.line, found.node, assumed=True)
    return found


def look_up(owner: Class, name: str) -> Value | None:
    """Look up a name in a class and its bases."""
    work, seen = [owner], 0
    while work and seen < _MOST_BASES:
        each = work.pop(0)
        seen += 1
        if name in each.names:
            return each.names[name]
        work.extend(base.data for base in each.bases if isinstance(base.data, Class))
    return None


def fields_of(instance: Instance) -> dict[Any, Value]:
    """All data attributes of an object, as `vars` and `asdict` return them."""
    found: dict[Any, Value] = {}
    for owner in reversed(lineage(instance.of)):
        found.update({name: owner.names[name] for name in owner.fields if name in owner.names})
    found.update(instance.attributes)
    if instance.assumed:
        return {name: Value(each.data, each.origin, each.line, each.node, assumed=True) for name, each in found.items()}
    return found


def lineage(owner: Class) -> list[Class]:
    """A class and its bases that the script defines."""
    found = [owner]
    for each in found:
        more = [base.data for base in each.bases if isinstance(base.data, Class)]
        found.extend(one for one in more if one not in found)
        if len(found) > _MOST_BASES:
            break
    return found


def _of_library(run: Run, data: External, name: str, node: ast.AST) -> Value:
    full, shown = f"{data.full}.{name}", f"{data.name}.{name}"
    dtype = dtype_name(shown) or dtype_name(full)
    if dtype is not None:
        return run.value(dtype, node)
    if full in _INFINITE:
        return run.value(math.inf, node)
    member = scalar(shown)
    if member != shown and isinstance(member, str):
        return run.value(member, node)
    if not data.imported:
        default = declared_default(run, name)
        if default is not None:
            return default
    if full == "sys.argv":
        return run.unknown(node)
    return run.value(External(shown, full, data.imported), node)


def entry(run: Run, holder: Value, key: Value, node: ast.AST) -> Value:
    """The value of `holder[key]`."""
    data = holder.data
    found: Value | None = None
    if isinstance(data, Table) and key.is_scalar:
        found = data.entries.get(key.data)
    elif isinstance(data, Row) and isinstance(key.data, int) and -len(data.items) <= key.data < len(data.items):
        found = data.items[key.data]
    elif isinstance(data, Instance) and isinstance(key.data, str):
        found = data.attributes.get(key.data)
    elif isinstance(data, str) and isinstance(key.data, int) and -len(data) <= key.data < len(data):
        return run.value(data[key.data], node, holder)
    elif isinstance(data, External) and data.full == "os.environ" and isinstance(key.data, str):
        found = environment_value(run, key.data)
    if found is None:
        return run.unknown(node)
    return run.unknown(node, found.data.least) if isinstance(found.data, Unknown) else found


def set_attribute(run: Run, holder: Value, name: str, value: Value) -> None:
    """`holder.name = value`."""
    data = holder.data
    table = _table(data)
    if table is not None:
        run.store.put(table, name, value)
    if isinstance(data, Class):
        data.overruled.add(name)


def set_entry(run: Run, holder: Value, key: Value, value: Value) -> None:
    """`holder[key] = value`."""
    data = holder.data
    if isinstance(data, Row):
        if isinstance(key.data, int) and -len(data.items) <= key.data < len(data.items):
            items = list(data.items)
            items[key.data] = value
            run.store.put(data.cell, "items", items)
    elif isinstance(data, External) and data.full == "os.environ" and isinstance(key.data, str):
        run.store.put(run.environment, key.data, value)
    elif key.is_scalar and isinstance(data, (Table, Instance)):
        run.store.put(data.entries if isinstance(data, Table) else data.attributes, key.data, value)


def _table(data: Any) -> dict[Any, Value] | None:
    if isinstance(data, Table):
        return data.entries
    if isinstance(data, (Instance, Made)):
        return data.attributes
    return data.names if isinstance(data, (Class, Module)) else None
