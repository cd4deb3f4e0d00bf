"""Follow the script's functions with bound arguments, within limits."""

from __future__ import annotations

import ast

from stayfinite.readers.configs.program.given import given_argument
from stayfinite.readers.configs.program.hydra import config_of_main
from stayfinite.readers.configs.program.joining import joined
from stayfinite.readers.configs.program.names import declared_default
from stayfinite.readers.configs.program.state import MOST_CALLS_OF_ONE, MOST_FRAMES, Frame, Run, Scope
from stayfinite.readers.configs.program.values import Function, Row, Table, Unknown, Value
from stayfinite.readers.configs.script_arguments import argument_of

_OPTIONS = frozenset({"option", "argument", "command"})


def call_function(
    run: Run,
    function: Function,
    positional: list[Value],
    keywords: dict[str, Value],
    node: ast.expr,
    *,
    assumed: bool = False,
) -> Value:
    """Return the value of a script function for these arguments.

    ``assumed``: the user may pass other arguments; missing ones take their defaults.
    """
    active = sum(frame.function is not None and frame.function.node is function.node for frame in run.frames)
    count = run.followed.get(function.node, 0)
    if run.spent or active > 1 or count >= MOST_CALLS_OF_ONE or len(run.frames) >= MOST_FRAMES:
        return run.unknown(node)
    run.followed[function.node] = count + 1
    scope = Scope(function.scope.origin, function.scope)
    bound = _bound(run, function, positional, keywords, node, assumed=assumed)
    scope.names.update(bound)
    frame = Frame(scope, function, given=bound, line=run.frame.line)
    run.frames.append(frame)
    try:
        if isinstance(function.node, ast.Lambda):
            return run.evaluate(run, function.node.body)
        left = run.execute(run, function.node.body)
    finally:
        run.frames.pop()
    return _result(run, function.node, frame.returns, node, left=left)


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
    value = joined(returns)
    return run.unknown(node, value.data.least) if isinstance(value.data, Unknown) else value


def _own_nodes(function: ast.AST) -> list[ast.AST]:
    found = list(ast.iter_child_nodes(function))
    for node in found:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            found.extend(ast.iter_child_nodes(node))
        if len(found) > 5_000:
            break
    return found


def _bound(
    run: Run,
    function: Function,
    positional: list[Value],
    keywords: dict[str, Value],
    node: ast.expr,
    *,
    assumed: bool,
) -> dict[str, Value]:
    arguments = function.node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    given = [function.bound, *positional] if function.bound is not None else positional
    bound = dict(zip(names, given, strict=False))
    rest = dict(keywords)
    for name in (*names, *(each.arg for each in arguments.kwonlyargs)):
        if name in bound:
            continue
        value = rest.pop(name, None)
        bound[name] = _missing(run, function, name, node, assumed=assumed) if value is None else value
    if arguments.vararg is not None:
        bound[arguments.vararg.arg] = run.value(Row({"items": list(given[len(names) :])}), node)
    if arguments.kwarg is not None:
        if function.kinds & _OPTIONS:
            rest = {**_options(run, function, bound), **rest}
        bound[arguments.kwarg.arg] = run.value(Table(dict(rest)), node)
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
