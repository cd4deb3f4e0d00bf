"""What an expression of a script is worth, as far as the script alone tells: constants, their names, arithmetic."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from stayfinite.core.settings import Expression
from stayfinite.readers.configs.scalars import dtype_name, scalar
from stayfinite.readers.configs.script_names import Names, dotted_name
from stayfinite.readers.configs.tree import Node, plain_data

_MOST_DEPTH = 40
_MOST_STEPS = 10_000
"""Of one value: names that stand for names double the work with each."""
_MOST_TEXT = 300
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


_MAPPINGS = frozenset(
    {
        "dict",
        "Dict",
        "ConfigDict",
        "EasyDict",
        "edict",
        "CfgNode",
        "CN",
        "SimpleNamespace",
        "Namespace",
        "AttrDict",
        "OrderedDict",
    }
)
_WRAPPERS = frozenset({"Path", "pathlib.Path", "torch.device", "list", "tuple", "OmegaConf.create"})
"""Calls that are worth what their one argument is."""


class Unknown(Exception):
    """Only running the program would tell."""


class Values:
    """Values of one script's expressions. ``defaulted`` says whether the last one rests on an argument's default."""

    def __init__(self, names: Names, lines: list[str]) -> None:
        self.names = names
        self.lines = lines
        self.defaulted = False
        self._steps = 0

    def node_of(self, expression: ast.expr, scope: str = "") -> Node:
        """The value as a tree; where it is unknown, the source as an ``Expression``."""
        self.defaulted = False
        self._steps = 0
        try:
            return self._node(expression, scope, 0)
        except Unknown:
            return Node(Expression(self.source_of(expression)), expression.lineno)

    def known(self, expression: ast.expr, scope: str = "") -> Any:
        """The value as plain data. Raises Unknown."""
        self.defaulted = False
        self._steps = 0
        return plain_data(self._node(expression, scope, 0))

    def source_of(self, node: ast.AST) -> str:
        """The source text of a node, on one line and not too long."""
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if not first or last > len(self.lines):
            return ""
        picked = [line.encode() for line in self.lines[first - 1 : min(last, first + 20)]]
        if last - first < 20:
            picked[-1] = picked[-1][: getattr(node, "end_col_offset", None)]
        picked[0] = picked[0][getattr(node, "col_offset", 0) :]
        text = " ".join(part.decode(errors="replace").strip() for part in picked)
        return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."

    def _node(self, expression: ast.expr, scope: str, depth: int) -> Node:
        self._steps += 1
        if depth > _MOST_DEPTH or self._steps > _MOST_STEPS:
            raise Unknown
        line = expression.lineno
        if isinstance(expression, ast.Dict):
            return self._dict(expression, scope, depth)
        if isinstance(expression, (ast.List, ast.Tuple, ast.Set)):
            return Node([self._child(each, scope, depth) for each in expression.elts[:1000]], line)
        if isinstance(expression, ast.Call):
            return self._call(expression, scope, depth)
        if isinstance(expression, ast.Subscript):
            return self._entry(expression, scope, depth)
        if isinstance(expression, ast.IfExp):
            return self._either(expression, scope, depth)
        if isinstance(expression, ast.Name):
            return Node(self._named(expression, scope, depth).value, line)
        if isinstance(expression, ast.Attribute):
            return Node(self._attribute(expression, depth).value, line)
        return Node(self._scalar(expression, scope, depth), line)

    def _child(self, expression: ast.expr, scope: str, depth: int) -> Node:
        """Inside a container an unknown value does not make the container unknown."""
        try:
            return self._node(expression, scope, depth + 1)
        except Unknown:
            return Node(Expression(self.source_of(expression)), expression.lineno)

    def _dict(self, expression: ast.Dict, scope: str, depth: int) -> Node:
        entries: dict[str, Node] = {}
        for key, value in zip(expression.keys, expression.values, strict=True):
            if key is None:
                self._merge(value, entries, scope, depth)
                continue
            try:
                name = str(plain_data(self._node(key, scope, depth + 1)))
            except Unknown:
                name = self.source_of(key)
            entries[name] = self._child(value, scope, depth)
        return Node(entries, expression.lineno)

    def _entry(self, expression: ast.Subscript, scope: str, depth: int) -> Node:
        """`{"float16": torch.float16, ...}[dtype]`, `config["lr"]`, of a container that is known."""
        container = self._node(expression.value, scope, depth + 1).value
        key = plain_data(self._node(expression.slice, scope, depth + 1))
        if isinstance(container, dict) and str(key) in container:
            found = container[str(key)]
        elif isinstance(container, list) and isinstance(key, int) and -len(container) <= key < len(container):
            found = container[key]
        else:
            raise Unknown
        if isinstance(found.value, Expression):
            raise Unknown
        return Node(found.value, expression.lineno)

    def _either(self, expression: ast.IfExp, scope: str, depth: int) -> Node:
        """Known where the condition is, or where it makes no difference."""
        try:
            condition = plain_data(self._node(expression.test, scope, depth + 1))
        except Unknown:
            one = self._node(expression.body, scope, depth + 1)
            if plain_data(one) != plain_data(self._node(expression.orelse, scope, depth + 1)):
                raise
            return one
        return self._node(expression.body if condition else expression.orelse, scope, depth + 1)

    def _merge(self, value: ast.expr, entries: dict[str, Node], scope: str, depth: int) -> None:
        try:
            merged = self._node(value, scope, depth + 1).value
        except Unknown:
            return
        if isinstance(merged, dict):
            entries.update(merged)

    def _call(self, call: ast.Call, scope: str, depth: int) -> Node:
        name = dotted_name(call.func, self.names.aliases)
        last = name.rpartition(".")[2]
        if is_mapping(last):
            entries: dict[str, Node] = {}
            for argument in call.args:
                self._merge(argument, entries, scope, depth)
            for keyword in call.keywords:
                if keyword.arg is None:
                    self._merge(keyword.value, entries, scope, depth)
                else:
                    entries[keyword.arg] = self._child(keyword.value, scope, depth)
            return Node(entries, call.lineno)
        arguments = call.args
        if name == "getattr" and len(arguments) >= 2 and isinstance(arguments[0], ast.Name):
            attribute = plain_data(self._node(arguments[1], scope, depth + 1))
            dtype = dtype_name(f"{arguments[0].id}.{attribute}")
            if dtype is not None:
                return Node(dtype, call.lineno)
        if name in {"float", "int", "str", "bool"} and len(arguments) == 1 and not call.keywords:
            return Node(_converted(name, plain_data(self._node(arguments[0], scope, depth + 1))), call.lineno)
        if name in _WRAPPERS and len(arguments) == 1:
            return self._node(arguments[0], scope, depth + 1)
        raise Unknown

    def _scalar(self, expression: ast.expr, scope: str, depth: int) -> Any:
        if isinstance(expression, ast.Constant):
            value = expression.value
            return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
        if isinstance(expression, ast.UnaryOp):
            operand = plain_data(self._node(expression.operand, scope, depth + 1))
            if isinstance(expression.op, ast.Not):
                return not operand
            if isinstance(operand, (int, float)):
                return -operand if isinstance(expression.op, ast.USub) else operand
            raise Unknown
        if isinstance(expression, ast.BinOp):
            left = plain_data(self._node(expression.left, scope, depth + 1))
            right = plain_data(self._node(expression.right, scope, depth + 1))
            return _computed(expression.op, left, right)
        raise Unknown

    def _named(self, name: ast.Name, scope: str, depth: int) -> Node:
        found = self.names.look_up(name.id, scope, name.lineno)
        if found is None:
            raise Unknown
        if found.is_default:
            self.defaulted = True
        return self._node(found.value, found.scope, depth + 1)

    def _attribute(self, attribute: ast.Attribute, depth: int) -> Node:
        name = dotted_name(attribute, self.names.aliases)
        dtype = dtype_name(name)
        if dtype is not None:
            return Node(dtype)
        if name in {"math.inf", "numpy.inf", "torch.inf", "np.inf"}:
            return Node(math.inf)
        enum = scalar(name)
        if enum != name and isinstance(enum, str):
            return Node(enum)
        default = self.names.default_of(attribute)
        if default is None:
            raise Unknown
        self.defaulted = True
        return self._node(default.value, default.scope, depth + 1)


def is_mapping(name: str) -> bool:
    """Whether a call of this name only puts its keywords together."""
    return name in _MAPPINGS


def _computed(kind: ast.operator, left: Any, right: Any) -> Any:
    operation = _ARITHMETIC.get(type(kind))
    if operation is None:
        raise Unknown
    if isinstance(left, str) and isinstance(right, str) and isinstance(kind, ast.Add) and len(left) + len(right) < 5000:
        return left + right
    for side in (left, right):
        if not isinstance(side, (int, float)) or not math.isfinite(side) or abs(side) > 1e18:
            raise Unknown
    if isinstance(kind, ast.Pow) and abs(right) > 64:
        raise Unknown
    try:
        result = operation(left, right)
    except (ArithmeticError, ValueError):
        raise Unknown from None
    if isinstance(result, complex):
        raise Unknown
    return result


def _converted(name: str, value: Any) -> Any:
    if name == "str" and not isinstance(value, (dict, list)):
        return str(value)
    if isinstance(value, str):
        value = scalar(value)
    try:
        if name == "bool" and not isinstance(value, str):
            return bool(value)
        if name == "float" and isinstance(value, (int, float)):
            return float(value)
        if name == "int" and isinstance(value, (int, float)):
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise Unknown
