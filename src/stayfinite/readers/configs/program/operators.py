"""Arithmetic, comparison and truth of known values."""

from __future__ import annotations

import ast
import math
import operator
import posixpath
from collections.abc import Callable
from typing import Any

from stayfinite.readers.configs.program.joining import same
from stayfinite.readers.configs.program.store import MISSING
from stayfinite.readers.configs.program.values import (
    Class,
    Function,
    Instance,
    Made,
    Row,
    Table,
    Unknown,
    Value,
)

MOST_TEXT = 5_000
_MOST_ITEMS = 1_000
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
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
        return bool(data.items) if "items" in data.cell else None
    return True if isinstance(data, (Function, Class, Instance, Made)) else None


def computed(kind: ast.operator, left: Any, right: Any) -> Any:
    """`left + right` and similar on plain data; ``MISSING`` if the result is undefined or unbounded."""
    if isinstance(kind, ast.Add) and isinstance(left, Row) and isinstance(right, Row):
        items = [*left.items, *right.items]
        return Row({"items": items}) if len(items) <= _MOST_ITEMS else MISSING
    if isinstance(kind, ast.BitOr) and isinstance(left, Table) and isinstance(right, Table):
        return Table({**left.entries, **right.entries})
    if isinstance(left, str) and isinstance(right, str) and len(left) + len(right) < MOST_TEXT:
        if isinstance(kind, ast.Add):
            return left + right
        return posixpath.join(left, right) if isinstance(kind, ast.Div) else MISSING  # a pathlib.Path and a name
    return _number(kind, left, right)


def _number(kind: ast.operator, left: Any, right: Any) -> Any:
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
    if isinstance(data, Row) and "items" in data.cell:
        found = [_equal(each, item) for each in data.items]
        return True if True in found else None if None in found else False
    return None


def _at_least(kind: ast.cmpop, least: int, other: float, *, mirrored: bool) -> bool | None:
    """`count > 0` where count is at least 1; ``mirrored`` for `0 < count`."""
    if isinstance(kind, (ast.Lt, ast.LtE) if mirrored else (ast.Gt, ast.GtE)):
        inclusive = isinstance(kind, (ast.LtE, ast.GtE))
        return True if least > other or (inclusive and least == other) else None
    return False if least > other else None
