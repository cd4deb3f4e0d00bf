"""Names, attributes, entries, operators and functions of plain data; flags and environment of the command."""

from __future__ import annotations

import ast
import math
import operator
import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stayfinite.core.settings import Expression, Setting, plain_name
from stayfinite.readers.configs.program.state import (
    MISSING,
    Call,
    Class,
    External,
    Frame,
    Function,
    Instance,
    Made,
    Method,
    Module,
    OpenFile,
    Origin,
    Parser,
    Partial,
    Row,
    Run,
    Slots,
    Super,
    Table,
    Unknown,
    Value,
    copied,
    items_of,
    same,
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


MOST_TEXT = 5_000
_MOST_ITEMS = 1_000
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def truth(value: Value) -> bool | None:
    """Whether `if value:` is taken; None if unknown."""
    data = value.data
    if value.is_scalar:
        return bool(data)
    if isinstance(data, Unknown):
        return True if data.least is not None and data.least > 0 else None
    if isinstance(data, Table):
        return bool(data.entries) or None
    if isinstance(data, Row):
        items = items_of(value)
        return None if items is None else bool(items)
    return True if isinstance(data, (Function, Class, Instance, Made)) else None


def computed(kind: ast.operator, left: Any, right: Any) -> Any:
    """`left + right` and similar on plain data; ``MISSING`` if the result is undefined or unbounded."""
    if isinstance(kind, ast.Add) and isinstance(left, Row) and isinstance(right, Row):
        items = [*left.items, *right.items]
        return Row(items) if len(items) <= _MOST_ITEMS else MISSING
    if isinstance(kind, ast.BitOr) and isinstance(left, Table) and isinstance(right, Table):
        return Table({**left.entries, **right.entries})
    if isinstance(left, str) and isinstance(right, str) and len(left) + len(right) < MOST_TEXT:
        if isinstance(kind, ast.Add):
            return left + right
        return posixpath.join(left, right) if isinstance(kind, ast.Div) else MISSING  # a pathlib.Path and a name
    return _arithmetic(kind, left, right)


def _arithmetic(kind: ast.operator, left: Any, right: Any) -> Any:
    operation = _ARITHMETIC.get(type(kind))
    for side in (left, right):
        if not isinstance(side, (int, float)) or not math.isfinite(side) or abs(side) > 1e18:
            return MISSING
    if operation is None or (isinstance(kind, ast.Pow) and abs(right) > 64):
        return MISSING
    try:
        result = operation(left, right)
    except (ArithmeticError, ValueError):
        return MISSING
    return MISSING if isinstance(result, complex) else result


def compared(kind: ast.cmpop, left: Value, right: Value) -> bool | None:
    """`left == right` and similar; None if unknown."""
    if isinstance(kind, (ast.NotEq, ast.IsNot, ast.NotIn)):
        positive = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In}[type(kind)]()
        found = compared(positive, left, right)
        return None if found is None else not found
    if isinstance(kind, (ast.Eq, ast.Is)):
        return _equal(left, right)
    if isinstance(kind, ast.In):
        return _contains(right, left)
    for one, other, mirrored in ((left, right, False), (right, left, True)):
        if isinstance(one.data, Unknown) and one.data.least is not None and isinstance(other.data, (int, float)):
            return _at_least(kind, one.data.least, other.data, mirrored=mirrored)
    if isinstance(left.data, Row) and isinstance(right.data, Row):
        return _ordered(kind, [each.data for each in left.data.items], [each.data for each in right.data.items])
    if left.is_scalar and right.is_scalar:
        return _ordered(kind, left.data, right.data)
    return None


def _ordered(kind: ast.cmpop, left: Any, right: Any) -> bool | None:
    try:
        return bool(_ORDER[type(kind)](left, right))
    except (TypeError, KeyError):
        return None


def _equal(left: Value, right: Value) -> bool | None:
    if left.is_scalar and right.is_scalar:
        return bool(left.data == right.data)
    for one, other in ((left, right), (right, left)):
        if isinstance(one.data, Unknown) and one.data.least is not None and isinstance(other.data, int):
            return False if other.data < one.data.least else None
    if isinstance(left.data, Unknown) or isinstance(right.data, Unknown):
        return None
    if same(left, right):
        return True
    own = (Table, Row, Function, Class, Instance, Made)
    if left.data is None or right.data is None:
        return False if isinstance(left.data, own) or isinstance(right.data, own) else None
    return None


def _contains(holder: Value, item: Value) -> bool | None:
    data = holder.data
    if isinstance(data, str) and isinstance(item.data, str):
        return item.data in data
    if not item.is_scalar:
        return None
    if isinstance(data, Table):
        return item.data in data.entries or None
    items = items_of(holder)
    if items is not None:
        found = [_equal(each, item) for each in items]
        return True if True in found else None if None in found else False
    return None


def _at_least(kind: ast.cmpop, least: int, other: float, *, mirrored: bool) -> bool | None:
    """`count > 0` where count is at least 1; ``mirrored`` for `0 < count`."""
    if isinstance(kind, (ast.Lt, ast.LtE) if mirrored else (ast.Gt, ast.GtE)):
        inclusive = isinstance(kind, (ast.LtE, ast.GtE))
        return True if least > other or (inclusive and least == other) else None
    return False if least > other else None


MAPPINGS = frozenset({
    "dict", "Dict", "ConfigDict", "EasyDict", "edict", "CfgNode", "CN", "SimpleNamespace", "Namespace", "AttrDict",
    "OrderedDict", "DotMap", "Munch", "Box", "DictConfig",
})  # fmt: skip
"""Calls that only collect their keywords."""
_PURE: dict[str, Callable[..., Any]] = {
    "max": max, "min": min, "abs": abs, "round": round, "sum": lambda *each: sum(each), "math.sqrt": math.sqrt,
    "math.log": math.log, "math.log2": math.log2, "math.log10": math.log10, "math.exp": math.exp,
    "math.ceil": math.ceil, "math.floor": math.floor, "math.pow": math.pow, "math.prod": lambda *each: math.prod(each),
    "numpy.sqrt": math.sqrt, "numpy.log": math.log, "numpy.exp": math.exp, "os.path.join": posixpath.join,
    "os.path.dirname": posixpath.dirname, "os.path.basename": posixpath.basename,
}  # fmt: skip
"""Functions of plain data."""
_SAME = frozenset({
    "Path", "pathlib.Path", "PosixPath", "os.path.abspath", "os.path.realpath", "os.path.expanduser",
    "os.path.normpath", "os.fspath", "eval", "ast.literal_eval", "OmegaConf.create", "omegaconf.OmegaConf.create",
    "os.path.expandvars", "L", "LazyCall", "torch.compile", "nn.DataParallel", "torch.nn.DataParallel",
})  # fmt: skip
"""Calls that return their first argument."""
_TYPES = {"str": (str,), "int": (int,), "float": (float,), "bool": (bool,), "dict": (Table,), "list": (Row,)}
_MOST_NUMBERS = 64
_MOST_CHARACTERS = 1_000


def computed_by(run: Run, function: External, call: Call) -> Value | None:
    """The result of a pure function; None for any other call or unknown arguments."""
    full = function.full
    last = full.rpartition(".")[2]
    if last in MAPPINGS:
        entries: dict[Any, Value] = {}
        for each in call.positional:
            entries.update(table_in(each))
        return run.value(Table({**entries, **call.keywords}), call.node)
    if full in {"list", "tuple", "set", "frozenset", "ListConfig", "sorted", "iter"}:
        return _listed(run, call)
    if not call.positional:
        return _factory(run, last, call)
    first = call.positional[0]
    if full in {"float", "int", "str", "bool"} and len(call.positional) == 1:
        return _converted(full, first)
    if full in _SAME:
        if (
            isinstance(first.data, str)
            and len(call.positional) > 1
            and all(isinstance(each.data, str) for each in call.positional)
        ):
            return run.value(posixpath.join(*(each.data for each in call.positional)), call.node, *call.positional)
        return first
    if full in _PURE:
        row = first.data
        given = row.items if len(call.positional) == 1 and isinstance(row, Row) else call.positional
        result = result_of(_PURE[full], given)
        return None if result is MISSING else run.value(result, call.node, *given)
    if full in {"copy.copy", "copy.deepcopy", "deepcopy", "copy"}:
        return run.unknown(call.node) if isinstance(first.data, (Unknown, Made)) else copied(first)
    if last in {"partial", "partialmethod"}:
        return run.value(Partial(first, call.positional[1:], dict(call.keywords)), call.node)
    if full == "zip":
        return _zipped(run, call)
    if full in {"open", "io.open", "fsspec.open"} and isinstance(first.data, str):
        return run.value(OpenFile(first.data), call.node)
    return _of_objects(run, full, last, call)


def _listed(run: Run, call: Call) -> Value | None:
    if not call.positional:
        return run.value(Row([]), call.node)
    data = call.positional[0].data
    if isinstance(data, Table):
        keys = [Value(key, each.origin, each.line, each.node) for key, each in data.entries.items()]
        return run.value(Row(keys), call.node)
    return copied(call.positional[0]) if isinstance(data, Row) else None


def table_in(value: Value) -> dict[Any, Value]:
    """The entries of a dict, a namespace or pairs; empty if unknown."""
    data = value.data
    if isinstance(data, Table):
        return data.entries
    if isinstance(data, Instance):
        return dict(data.attributes)
    if isinstance(data, Row):
        pairs = [each.data.items for each in data.items if isinstance(each.data, Row) and len(each.data.items) == 2]
        return {key.data: each for key, each in pairs if key.is_scalar}
    return {}


def _factory(run: Run, last: str, call: Call) -> Value | None:
    """`field(default=...)`, `Field(default_factory=list)`."""
    if last.lower() not in {"field", "ib", "attrib", "option"}:
        return None
    if "default" in call.keywords:
        return call.keywords["default"]
    made = call.keywords.get("default_factory", call.keywords.get("factory"))
    return run.call(run, made, Call(call.node)) if made is not None else run.unknown(call.node)


def _converted(kind: str, value: Value) -> Value | None:
    """The value converted to another type, keeping its location."""
    if not value.is_scalar:
        return None
    data: Any = value.data
    try:
        if kind == "str":
            data = str(data)
        elif kind == "bool":
            data = bool(data)
        else:
            number = scalar(data) if isinstance(data, str) else data
            if not isinstance(number, (int, float)):
                return None
            data = float(number) if kind == "float" else int(number)
    except (ValueError, OverflowError):
        return None
    return Value(data, value.origin, value.line, value.node, value.assumed)


def result_of(function: Callable[..., Any], given: list[Value]) -> Any:
    """The plain result of a function; ``MISSING`` if it fails, or a value is unknown or large."""
    data = [each.data for each in given]
    if not 0 < len(data) <= _MOST_NUMBERS or not all(map(_is_small, data)):
        return MISSING
    try:
        result = function(*data)
    except (ValueError, ArithmeticError, TypeError):
        return MISSING
    return result if isinstance(result, (int, float, str)) else MISSING


def _is_small(data: Any) -> bool:
    return (
        len(data) <= _MOST_CHARACTERS if isinstance(data, str) else isinstance(data, (int, float)) and abs(data) < 1e18
    )


def _zipped(run: Run, call: Call) -> Value | None:
    rows = [items_of(each) for each in call.positional]
    known = [each for each in rows if each is not None]
    if len(known) != len(rows):
        return None
    return run.value(Row([run.value(Row(list(each)), call.node) for each in zip(*known, strict=False)]), call.node)


def _of_objects(run: Run, full: str, last: str, call: Call) -> Value | None:
    first, data = call.positional[0], call.positional[0].data
    second = call.positional[1] if len(call.positional) > 1 else None
    if full == "getattr" and second is not None and isinstance(second.data, str):
        found = attribute(run, first, second.data, call.node)
        if isinstance(found.data, (Unknown, External)) and len(call.positional) > 2 and not _may_have(data):
            return call.positional[2]
        return found
    if full == "hasattr" and second is not None and isinstance(second.data, str) and not _may_have(data):
        there = not isinstance(attribute(run, first, second.data, call.node).data, (Unknown, Method))
        return run.value(True, call.node, first) if there else None
    if full == "setattr" and second is not None and isinstance(second.data, str) and len(call.positional) > 2:
        set_attribute(run, first, second.data, call.positional[2])
        return run.value(None, call.node)
    if last in {"vars", "asdict", "to_container", "to_object", "namespace2dict"}:
        if isinstance(data, Instance):
            return run.value(Table(fields_of(data)), call.node)
        return first if isinstance(data, Table) else None
    if full == "isinstance" and second is not None and isinstance(second.data, Class):
        if isinstance(data, Instance):
            return run.value(True, call.node) if second.data in lineage(data.of) else None
        return run.value(False, call.node) if first.is_scalar or isinstance(data, (Table, Row)) else None
    if full == "isinstance" and second is not None and isinstance(second.data, External):
        types = _TYPES.get(second.data.full)
        known = first.is_scalar or isinstance(data, (Table, Row))
        return run.value(isinstance(data, types), call.node, first) if types and known else None
    if full == "len" and isinstance(data, (Table, Row, str)):
        size = len(data.entries) if isinstance(data, Table) else len(data.items) if isinstance(data, Row) else len(data)
        return run.value(size, call.node, first)
    if last == "replace" and isinstance(data, Instance):
        twin = copied(first)
        twin.data.attributes = Slots({**twin.data.attributes, **call.keywords})
        return twin
    if last in {"Field", "field", "Option", "Argument"}:
        return first  # default of pydantic and typer
    if last == "structured" and isinstance(data, (Class, Instance)):
        return run.call_assumed(run, first, call.node) if isinstance(data, Class) else first
    return None


def _may_have(data: Any) -> bool:
    """Whether an attribute that is not visible may exist."""
    return isinstance(data, (Unknown, External, Module))
