"""Calls: bind arguments, follow the script's own functions and classes within limits, look up others by name."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import partial

from stayfinite.readers.configs.program.data_files import config_of_main
from stayfinite.readers.configs.program.libraries import call_library, call_method, parser_of
from stayfinite.readers.configs.program.names import (
    OF_MODELS,
    bind,
    declared_default,
    given_argument,
    lineage,
    look_up,
    shown_name,
)
from stayfinite.readers.configs.program.state import MOST_CALLS_OF_ONE, MOST_FRAMES, Frame, Run, Scope, copied, joined
from stayfinite.readers.configs.program.values import (
    Call,
    Class,
    External,
    Function,
    Instance,
    Made,
    Method,
    Partial,
    Row,
    Super,
    Table,
    Unknown,
    Value,
    items_of,
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
