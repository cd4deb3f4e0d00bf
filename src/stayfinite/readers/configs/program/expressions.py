"""Evaluate expressions, once each time their statement is reached."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from stayfinite.readers.configs.program.calls import follow_call
from stayfinite.readers.configs.program.names import attribute, bind, entry, named
from stayfinite.readers.configs.program.pure import MOST_TEXT, compared, computed, truth
from stayfinite.readers.configs.program.state import DEEPEST, Frame, Run, Scope, joined
from stayfinite.readers.configs.program.values import MISSING, Function, Row, Table, Value, items_of

_MOST_UNROLLED = 64


def evaluate(run: Run, node: ast.expr) -> Value:
    """The value of an expression. Calls inside it are followed and recorded."""
    run.steps += 1
    if run.depth > DEEPEST:
        return run.unknown(node)
    run.depth += 1
    try:
        look = _KINDS.get(type(node))
        return look(run, node) if look is not None else _parts(run, node)
    finally:
        run.depth -= 1


def _parts(run: Run, node: ast.AST) -> Value:
    """Visit the calls inside an expression of an unsupported kind."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            evaluate(run, child)
        elif not isinstance(child, (ast.expr_context, ast.operator)):
            _parts(run, child)
    return run.unknown(node)


def _constant(run: Run, node: ast.Constant) -> Value:
    value = node.value
    known = value is None or isinstance(value, (str, int, float, bool))
    return run.value(value if known else str(value), node)


def _attribute(run: Run, node: ast.Attribute) -> Value:
    return attribute(run, evaluate(run, node.value), node.attr, node)


def _subscript(run: Run, node: ast.Subscript) -> Value:
    holder = evaluate(run, node.value)
    return entry(run, holder, evaluate(run, node.slice), node)


def _choice(run: Run, node: ast.IfExp) -> Value:
    """Known if the condition is, or if both sides are equal."""
    condition = evaluate(run, node.test)
    taken = truth(condition)
    if taken is not None:
        value = evaluate(run, node.body if taken else node.orelse)
        if condition.assumed and not value.assumed:
            return Value(value.data, value.origin, value.line, value.node, assumed=True)
        return value
    both = joined([evaluate(run, node.body), evaluate(run, node.orelse)])
    return both if both.is_scalar or isinstance(both.data, Table) else run.used(both, node)


def _bool_op(run: Run, node: ast.BoolOp) -> Value:
    """`a and b`, `a or b`: the first deciding value, else the last."""
    decides = isinstance(node.op, ast.Or)
    certain, seen = True, []
    for each in node.values:
        value = evaluate(run, each)
        seen.append(value)
        taken = truth(value)
        if taken is decides:
            # `args.half and unknown` is False, whatever the unknown value is.
            return (
                _with_doubt(value, seen)
                if certain or (value.is_scalar and isinstance(value.data, bool))
                else run.unknown(node)
            )
        certain = certain and taken is not None
    return _with_doubt(seen[-1], seen) if certain else run.unknown(node)


def _with_doubt(value: Value, seen: list[Value]) -> Value:
    assumed = any(each.assumed for each in seen)
    return value if value.assumed == assumed else Value(value.data, value.origin, value.line, value.node, assumed)


def _unary_op(run: Run, node: ast.UnaryOp) -> Value:
    operand = evaluate(run, node.operand)
    if isinstance(node.op, ast.Not):
        taken = truth(operand)
        return run.unknown(node) if taken is None else run.value(not taken, node, operand)
    if not isinstance(operand.data, (int, float)) or isinstance(node.op, ast.Invert):
        return run.unknown(node)
    return run.value(-operand.data if isinstance(node.op, ast.USub) else operand.data, node, operand)


def _bin_op(run: Run, node: ast.BinOp) -> Value:
    left, right = evaluate(run, node.left), evaluate(run, node.right)
    result = computed(node.op, left.data, right.data)
    return run.unknown(node, left, right) if result is MISSING else run.value(result, node, left, right)


def _compare(run: Run, node: ast.Compare) -> Value:
    values = [evaluate(run, each) for each in (node.left, *node.comparators)]
    found = [compared(kind, *pair) for kind, pair in zip(node.ops, pairwise(values), strict=True)]
    if False in found:
        return run.value(False, node, *values)
    return run.unknown(node) if None in found else run.value(True, node, *values)


def _dict(run: Run, node: ast.Dict) -> Value:
    entries: dict[Any, Value] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            merged = evaluate(run, value)
            if isinstance(merged.data, Table):
                entries.update(merged.data.entries)
            continue
        known = evaluate(run, key)
        entries[known.data if known.is_scalar else known.text] = _named_by(run, known, value)
    return run.value(Table(entries), node)


def _named_by(run: Run, key: Value, node: ast.expr) -> Value:
    """Evaluate a value under its key, which says what it is for: `{"ref_model": load()}`."""
    return run.telling.under(run, key.data if isinstance(key.data, str) else "", lambda: evaluate(run, node))


def _row(run: Run, node: ast.List | ast.Tuple | ast.Set) -> Value:
    items: list[Value] = []
    for each in node.elts[:1000]:
        if isinstance(each, ast.Starred):
            more = items_of(evaluate(run, each.value))
            if more is None:
                return _parts(run, node)
            items.extend(more)
        else:
            items.append(evaluate(run, each))
    return run.value(Row(items), node)


def _text(run: Run, node: ast.JoinedStr) -> Value:
    parts, used = [], []
    for each in node.values:
        inner = each.value if isinstance(each, ast.FormattedValue) else each
        value = evaluate(run, inner)
        used.append(value)
        given = each.format_spec if isinstance(each, ast.FormattedValue) else None
        written = _formatted(value.data, given, getattr(each, "conversion", -1)) if value.is_scalar else None
        parts.append(written)
    if None in parts or sum(len(part or "") for part in parts) > MOST_TEXT:
        return run.unknown(node)
    return run.value("".join(part or "" for part in parts), node, *used)


def _formatted(data: Any, given: ast.expr | None, conversion: int) -> str | None:
    if given is None:
        return repr(data) if conversion == ord("r") else str(data)
    literal = given.values if isinstance(given, ast.JoinedStr) else []
    text = "".join(str(each.value) for each in literal if isinstance(each, ast.Constant))
    try:
        return (
            format(data, text) if len(text) <= 6 and all(isinstance(each, ast.Constant) for each in literal) else None
        )
    except (ValueError, TypeError):
        return None


def _assigned(run: Run, node: ast.NamedExpr) -> Value:
    value = evaluate(run, node.value)
    bind(run, node.target.id, value)
    return value


def _lambda(run: Run, node: ast.Lambda) -> Value:
    defaults = function_defaults(run, node.args)
    function = Function(node, run.frame.scope, defaults)
    run.functions.append(function)
    return run.value(function, node)


def function_defaults(run: Run, arguments: ast.arguments) -> dict[str, Value]:
    """Parameter defaults, evaluated where the function is defined."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
    pairs += [(each, value) for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    return {each.arg: evaluate(run, value) for each, value in pairs}


def _comprehension(run: Run, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    """Followed over known items; otherwise its parts are visited once."""
    generator = node.generators[0]
    over = evaluate(run, generator.iter)
    items = items_of(over)
    scope = Scope(run.frame.scope.origin, run.frame.scope)
    with run.inside(Frame(scope, line=run.frame.line, target=run.frame.target)):
        if items is None or len(items) > _MOST_UNROLLED or len(node.generators) > 1:
            return _looked_at(run, node, over)
        return _collected(run, node, generator, items)


def _looked_at(run: Run, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, over: Value) -> Value:
    for generator in node.generators:
        assign_unknown(run, generator.target, over)
        for each in generator.ifs:
            evaluate(run, each)
    for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
        evaluate(run, part)
    return run.unknown(node, over)


def _collected(
    run: Run,
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
    generator: ast.comprehension,
    items: list[Value],
) -> Value:
    entries: dict[Any, Value] = {}
    found: list[Value] = []
    for item in items:
        assign(run, generator.target, item)
        kept = [truth(evaluate(run, each)) for each in generator.ifs]
        if False in kept:
            continue
        if None in kept:
            return _looked_at(run, node, run.value(Row(items), node))
        if isinstance(node, ast.DictComp):
            key = evaluate(run, node.key)
            entries[key.data if key.is_scalar else key.text] = evaluate(run, node.value)
        else:
            found.append(evaluate(run, node.elt))
    return run.value(Table(entries) if isinstance(node, ast.DictComp) else Row(found), node)


def assign(run: Run, target: ast.expr, value: Value) -> None:
    """Bind a name, or each of `a, b`; ``statements`` handles other targets."""
    if isinstance(target, ast.Name):
        bind(run, target.id, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for each, item in unpacked(run, target, value):
            assign(run, each, item)


def unpacked(run: Run, target: ast.Tuple | ast.List, value: Value) -> list[tuple[ast.expr, Value]]:
    """Each part of `a, b` with its value; if the values are not known, none, and the names become unknown."""
    items = items_of(value) or []
    if len(items) != len(target.elts) or any(isinstance(each, ast.Starred) for each in target.elts):
        assign_unknown(run, target, value)
        return []
    return list(zip(target.elts, items, strict=True))


def assign_unknown(run: Run, target: ast.expr, part_of: Value) -> None:
    """Bind every name in a target to an unknown part of a value."""
    for each in ast.walk(target):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            bind(run, each.id, run.unknown(each, part_of))


_KINDS: dict[type[ast.AST], Callable[[Run, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: named,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: follow_call,
    ast.IfExp: _choice,
    ast.BoolOp: _bool_op,
    ast.UnaryOp: _unary_op,
    ast.BinOp: _bin_op,
    ast.Compare: _compare,
    ast.Dict: _dict,
    ast.List: _row,
    ast.Tuple: _row,
    ast.Set: _row,
    ast.JoinedStr: _text,
    ast.NamedExpr: _assigned,
    ast.Lambda: _lambda,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Await: lambda run, node: evaluate(run, node.value),
    ast.Starred: lambda run, node: evaluate(run, node.value),
}
