"""Resolve names, attributes and entries, and what the command that starts the script gives: flags and environment."""

from __future__ import annotations

import ast
import math
import posixpath
from dataclasses import replace
from typing import Any

from stayfinite.core.settings import Expression, Setting, plain_name
from stayfinite.readers.configs.program.state import Frame, Run, same
from stayfinite.readers.configs.program.values import (
    Call,
    Class,
    External,
    Function,
    Instance,
    Made,
    Method,
    Module,
    OpenFile,
    Origin,
    Parser,
    Row,
    Super,
    Table,
    Unknown,
    Value,
)
from stayfinite.readers.configs.scalars import dtype_name, scalar


def given_argument(run: Run, name: str) -> Value | None:
    """The value of an argument in the command; None if absent."""
    setting = run.surroundings.arguments.get(plain_name(name))
    return None if setting is None else _value(setting)


def environment_value(run: Run, name: str) -> Value | None:
    """An environment variable set by the command or the script."""
    if name in run.environment:
        return run.environment[name]
    setting = run.surroundings.arguments.get(name)
    if setting is None or setting.name != name:
        return None
    value = _value(setting)
    value.data = str(value.data) if value.is_scalar else value.data
    return value


def _value(setting: Setting) -> Value:
    origin = Origin(setting.source)
    data = setting.value
    if isinstance(data, list):
        data = Row([Value(each, origin, setting.line) for each in data])
    elif isinstance(data, (Expression, dict)):
        data = Unknown()
    return Value(data, origin, setting.line)


_MOST_DOTS = 30


def bind(run: Run, name: str, value: Value) -> None:
    """Bind a name in the scope that owns it."""
    run.store.put(run.frame.scope.owner_of(name).names, name, value)


def named(run: Run, node: ast.Name) -> Value:
    """The value of a name; for one that the script never sets, the name itself."""
    found = run.frame.scope.find(node.id)
    if found is None:
        if node.id == "__name__":
            return run.value("__main__" if run.frame.scope.module.is_main else "module", node)
        if node.id == "__file__":
            return run.value(run.frame.scope.origin.source, node)
        return run.value(External(node.id, node.id, imported=False), node)
    if isinstance(found.data, Made):
        tell_of(found.data)
    return run.used(found, node)


def tell_of(made: Made) -> None:
    """Record the settings of an object from another module on its first use."""
    while made.untold:
        made.untold.pop()()


def declared_default(run: Run, name: str) -> Value | None:
    """The default of `args.lr` for an unknown `args`, if all arguments and fields of that name agree."""
    found = run.declared.get(name)
    if not found or run.depth > 100:
        return None
    given = run.surroundings.arguments.get(name.lower())
    values = []
    for expression, scope in found[:8]:
        with run.inside(Frame(scope, line=run.frame.line)), run.telling.silence():
            values.append(run.evaluate(run, expression))
    first = values[0]
    if given is not None or not all(same(first, each) for each in values[1:]) or isinstance(first.data, Unknown):
        return None
    return Value(first.data, first.origin, first.line, first.node, assumed=True)


def dotted_name(node: ast.expr, aliases: dict[str, str]) -> str:
    """`torch.optim.AdamW` of an expression, skipping calls and indices; "" for others."""
    parts: list[str] = []
    for _ in range(_MOST_DOTS):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.args[0] if _is_lazy_call(node) else node.func
        elif isinstance(node, (ast.Subscript, ast.Await)):
            node = node.value
        elif isinstance(node, ast.Name):
            parts.append(aliases.get(node.id, node.id))
            break
        else:
            break
    return ".".join(reversed(parts))


def shown_name(run: Run, function: ast.expr, value: Value) -> str:
    """The name for a call's settings: the library name if it is one, else as written."""
    if isinstance(value.data, External):
        return value.data.name
    root: ast.expr = function
    for _ in range(_MOST_DOTS):
        if isinstance(root, (ast.Attribute, ast.Subscript, ast.Await)):
            root = root.value
        elif isinstance(root, ast.Call):
            root = root.func
    found = run.frame.scope.find(root.id) if isinstance(root, ast.Name) else None
    known = isinstance(root, ast.Name) and found is not None and isinstance(found.data, External)
    return dotted_name(function, {root.id: found.data.name} if known and found and isinstance(root, ast.Name) else {})


def _is_lazy_call(call: ast.Call) -> bool:
    """`L(AdamW)(lr=1e-4)`: detectron2's lazy call."""
    return isinstance(call.func, ast.Name) and call.func.id in {"L", "LazyCall"} and len(call.args) == 1


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
OF_MODELS = RETURN_THEMSELVES | {"parameters", "named_parameters", "state_dict", "load_state_dict", "modules"}
INHERITED = OF_MODELS | {"save_hyperparameters"}


def attribute(run: Run, base: Value, name: str, node: ast.AST) -> Value:
    """The value of `base.name`."""
    data = base.data
    if isinstance(data, External):
        return _of_library(run, data, name, node)
    found = _found(run, base, name, node)
    if found is not None and isinstance(found.data, Made):
        tell_of(found.data)
    if found is not None:
        return run.used(found, node)
    if isinstance(data, Instance) and name in INHERITED:
        return run.value(Method(base, name), node)
    if isinstance(data, (Unknown, Made)) and name == "module":  # the model inside of a wrapper
        return base
    if isinstance(data, (Unknown, Instance, Made)):
        return declared_default(run, name) or run.unknown(node, base)
    if isinstance(data, str) and name in _OF_TEXT:
        return Value(_OF_TEXT[name](data), base.origin, base.line, base.node, base.assumed)
    if isinstance(data, (Table, Row, str, Parser, OpenFile)):
        return run.value(Method(base, name), node)
    return run.unknown(node)


def _found(run: Run, base: Value, name: str, node: ast.AST) -> Value | None:
    data = base.data
    if isinstance(data, (Module, Table, Made)):
        return (_table(data) or {}).get(name)
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
        value = Value(replace(function, bound=instance), found.origin, found.line, found.node)
        if function.kinds & {"property", "cached_property"} and isinstance(node, ast.expr):
            return run.call(run, value, Call(node))
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
    return run.used(found, node)


def set_attribute(run: Run, holder: Value, name: str, value: Value) -> None:
    """`holder.name = value`."""
    data = holder.data
    if name == "requires_grad" and value.data is False and not run.in_doubt:
        run.weights.froze(holder)
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
