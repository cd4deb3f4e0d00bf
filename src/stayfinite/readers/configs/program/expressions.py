"""Evaluate expressions, once each time their statement is reached, and follow calls of the script's own functions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from stayfinite.readers.configs.program.files import config_of_main
from stayfinite.readers.configs.program.libraries import call_library, call_method, parser_of
from stayfinite.readers.configs.program.names import (
    MOST_TEXT,
    OF_MODELS,
    attribute,
    bind,
    compared,
    computed,
    declared_default,
    entry,
    given_argument,
    lineage,
    look_up,
    named,
    shown_name,
    truth,
)
from stayfinite.readers.configs.program.state import (
    DEEPEST,
    MISSING,
    MOST_CALLS_OF_ONE,
    MOST_FRAMES,
    Call,
    Class,
    External,
    Frame,
    Function,
    Instance,
    Made,
    Method,
    Partial,
    Row,
    Run,
    Scope,
    Super,
    Table,
    Unknown,
    Value,
    copied,
    items_of,
    joined,
)
from stayfinite.readers.configs.script_calls import argument_of

_OPTIONS = frozenset({"option", "argument", "command"})


def call_function(run: Run, function: Function, call: Call) -> Value:
    """Return the value of a script function for these arguments.

    ``assumed``: the user may pass other arguments; missing ones take their defaults.
    """
    active = sum(frame.function is not None and frame.function.node is function.node for frame in run.frames)
    count = run.followed.get(function.node, 0)
    if run.spent or active > 1 or count >= MOST_CALLS_OF_ONE or len(run.frames) >= MOST_FRAMES:
        return run.unknown(call.node)
    run.followed[function.node] = count + 1
    scope = Scope(function.scope.origin, function.scope)
    bound = _parameters(run, function, call)
    scope.names.update(bound)
    frame = Frame(scope, function, given=bound, line=run.frame.line)
    with run.inside(frame):
        if isinstance(function.node, ast.Lambda):
            return run.evaluate(run, function.node.body)
        left = run.execute(run, function.node.body)
    return _result(run, function.node, frame.returns, call.node, left=left)


def _result(
    run: Run, function: ast.FunctionDef | ast.AsyncFunctionDef, returns: list[Value], node: ast.expr, *, left: bool
) -> Value:
    if function not in run.generators:
        run.generators[function] = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in _own_nodes(function))
    if run.generators[function]:
        return run.unknown(node)
    if not left:
        returns = [*returns, run.value(None, node)]
    if not returns:  # every path raises
        return run.unknown(node)
    return run.used(joined(returns), node)


def _own_nodes(function: ast.AST) -> list[ast.AST]:
    found = list(ast.iter_child_nodes(function))
    for node in found:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            found.extend(ast.iter_child_nodes(node))
        if len(found) > 5_000:
            break
    return found


def _parameters(run: Run, function: Function, call: Call) -> dict[str, Value]:
    arguments = function.node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    given = [function.bound, *call.positional] if function.bound is not None else call.positional
    bound = dict(zip(names, given, strict=False))
    rest = dict(call.keywords)
    for name in (*names, *(each.arg for each in arguments.kwonlyargs)):
        if name in bound:
            continue
        value = rest.pop(name, None)
        bound[name] = _missing(run, function, name, call.node, assumed=call.is_open) if value is None else value
    if arguments.vararg is not None:
        bound[arguments.vararg.arg] = run.value(Row(list(given[len(names) :])), call.node)
    if arguments.kwarg is not None:
        if function.kinds & _OPTIONS:
            rest = {**_options(run, function, bound), **rest}
        bound[arguments.kwarg.arg] = run.value(Table(dict(rest)), call.node)
    return bound


def _options(run: Run, function: Function, bound: dict[str, Value]) -> dict[str, Value]:
    """click options, for a function that takes them as `**kwargs`."""
    found: dict[str, Value] = {}
    for decorator in getattr(function.node, "decorator_list", []):
        argument = argument_of(decorator, "option") if isinstance(decorator, ast.Call) else None
        if argument is not None and argument.attribute not in bound:
            value = given_argument(run, argument.attribute) or declared_default(run, argument.attribute)
            if value is not None:
                found[argument.attribute] = value
    return found


def _missing(run: Run, function: Function, name: str, node: ast.expr, *, assumed: bool) -> Value:
    """The value of a parameter that the call omits."""
    if function.kinds & _OPTIONS:
        assumed = True
    if assumed and (told := given_argument(run, name)) is not None:
        return told
    default = function.defaults.get(name)
    if default is not None:
        run.telling.left_at_default(function, name)
        return Value(default.data, default.origin, default.line, default.node, assumed or default.assumed)
    if function.kinds & _OPTIONS:
        return declared_default(run, name) or run.unknown(node)
    if "main" in function.kinds and isinstance(function.node, ast.FunctionDef):
        config = config_of_main(run, function.node)
        if config is not None:
            return config
    return run.unknown(node)


_MOST_MADE = 4


def define_class(run: Run, statement: ast.ClassDef) -> bool:
    """Evaluate a class body once."""
    bases = [run.evaluate(run, each) for each in statement.bases]
    for each in (*statement.decorator_list, *(keyword.value for keyword in statement.keywords)):
        run.evaluate(run, each)
    scope = Scope(run.frame.scope.origin, run.frame.scope, is_class=True)
    with run.inside(Frame(scope, line=statement.lineno)):
        run.execute(run, statement.body)
    fields = [
        each.target.id
        for each in statement.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    made = Class(statement, scope, scope.names, bases, fields)
    for value in scope.names.values():
        if isinstance(value.data, Function) and value.data.scope is scope:
            value.data.owner = made
    run.classes.append(made)
    bind(run, statement.name, run.value(made, statement))
    return False


def instantiate(run: Run, of: Value, call: Call) -> Value:
    """Create an instance, applying its `__init__` or its fields to the arguments."""
    owner: Class = of.data
    instance = Instance(owner, assumed=call.is_open)
    value = run.value(instance, call.node)
    if len(owner.made) < _MOST_MADE:
        owner.made.append(value)
    start = look_up(owner, "__init__")
    if start is not None and isinstance(start.data, Function):
        call_function(run, replace(start.data, bound=value), call)
        return value
    names = [name for each in reversed(lineage(owner)) for name in each.fields]
    names = list(dict.fromkeys(names))
    given = {**dict(zip(names, call.positional, strict=False)), **call.keywords}
    if call.is_open:
        told = {name: given_argument(run, name) for name in names if name not in given}
        given.update({name: each for name, each in told.items() if each is not None})
    instance.attributes.update(given)
    owner.overruled.update(given)
    for name in names:
        default = look_up(owner, name)
        if name not in given and default is not None:
            owner.left.add(name)
            fresh = copied(default)  # each instance has its own list
            instance.attributes[name] = Value(
                fresh.data, fresh.origin, fresh.line, fresh.node, call.is_open or default.assumed
            )
    after = look_up(owner, "__post_init__")
    if after is not None and isinstance(after.data, Function):
        call_function(run, replace(after.data, bound=value), Call(call.node))
    return value


def follow_call(run: Run, node: ast.Call) -> Value:
    """Evaluate a call and record its settings."""
    if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
        return _super(run, node)
    function = _method_of_model(run, node.func) or run.evaluate(run, node.func)
    called, call = _opened(function, _given(run, node))
    name = called.data.name if called is not function and isinstance(called.data, External) else ""
    name = name or shown_name(run, node.func, called)
    if isinstance(called.data, Method) and isinstance(called.data.of.data, (Table, Row, str)):
        return call_value(run, called, call)  # `config.freeze()` does not freeze a layer
    if isinstance(called.data, Function):
        before = run.followed.get(called.data.node, 0)
        result = call_value(run, called, call)
        followed = run.followed.get(called.data.node, 0) > before
        # Arguments of the script's own functions are recorded where the function uses them.
        run.telling.call(run, name, Call(node) if followed else call)
        run.weights.called(run, name, called, call, result)
        return result
    result = call_value(run, called, call)
    if isinstance(result.data, Made) and run.frame.scope.parent is None and not run.frame.scope.is_main:
        result.data.untold.append(run.telling.later(run, name, call))
    else:
        # A script class may share a library's name but not its parameter order.
        run.telling.call(run, name, replace(call, positional=[]) if isinstance(called.data, Class) else call)
    run.weights.called(run, name, called, call, result)
    return result


def _method_of_model(run: Run, function: ast.expr) -> Value | None:
    """`model.half` for a model of which nothing is known but its place; None for anything else."""
    if not isinstance(function, ast.Attribute) or function.attr not in OF_MODELS:
        return None
    base = run.evaluate(run, function.value)
    return run.value(Method(base, function.attr), function) if isinstance(base.data, (Unknown, Made)) else None


def call_value(run: Run, function: Value, call: Call) -> Value:
    """Return the value of a call."""
    function, call = _opened(function, call)
    data = function.data
    if isinstance(data, Function):
        return call_function(run, data, call)
    if isinstance(data, Class):
        of_library = parser_of(data)
        return instantiate(run, function, call) if of_library is None else call_library(run, of_library, call)
    if isinstance(data, Method):
        return call_method(run, data, call)
    if isinstance(data, External):
        return call_library(run, data, call)
    if isinstance(data, Instance):
        own = look_up(data.of, "__call__")
        if own is not None and isinstance(own.data, Function):
            return call_function(run, own.data, Call(call.node, [function, *call.positional], call.keywords))
    return run.unknown(call.node, function, *call.positional, *call.keywords.values())


def _given(run: Run, node: ast.Call) -> Call:
    """The arguments, with `*row` and `**table` expanded as far as known."""
    call = Call(node)
    for each in node.args:
        value = run.evaluate(run, each)
        items = items_of(value) if isinstance(each, ast.Starred) else [value]
        if items is None:
            call.is_open = True
            break
        call.written.update(dict.fromkeys(range(len(call.positional), len(call.positional) + len(items)), each))
        call.positional += items
    for keyword in node.keywords:
        if keyword.arg is not None:
            call.written[keyword.arg] = keyword.value
            look = partial(run.evaluate, run, keyword.value)
            call.keywords[keyword.arg] = run.telling.under(run, keyword.arg, look)
            continue
        more = run.evaluate(run, keyword.value)
        if isinstance(more.data, Table):
            call.keywords.update({str(key): each for key, each in more.data.entries.items()})
        else:
            call.is_open = True
    return call


def _opened(function: Value, call: Call) -> tuple[Value, Call]:
    """Expand a partial into a call of its function."""
    while isinstance(function.data, Partial):
        before, function = function.data, function.data.function
        count = len(before.positional)
        written = {key + count if isinstance(key, int) else key: each for key, each in call.written.items()}
        positional, keywords = [*before.positional, *call.positional], {**before.keywords, **call.keywords}
        call = Call(call.node, positional, keywords, call.is_open, written)
    return function, call


def _super(run: Run, node: ast.Call) -> Value:
    for frame in reversed(run.frames):
        if frame.function is not None and frame.function.owner is not None and frame.function.bound is not None:
            return run.value(Super(frame.function.bound, frame.function.owner), node)
    return run.value(Unknown(), node)


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
