"""Calls: bind arguments, follow the script's own functions, look up library functions by name."""

from __future__ import annotations

import ast
from functools import partial

from stayfinite.readers.configs.program.attributes import look_up
from stayfinite.readers.configs.program.classes import instantiate
from stayfinite.readers.configs.program.functions import call_function
from stayfinite.readers.configs.program.libraries import call_library
from stayfinite.readers.configs.program.methods import call_method
from stayfinite.readers.configs.program.names import shown_name
from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.values import (
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
)
from stayfinite.readers.configs.script_calls import Given


def follow_call(run: Run, node: ast.Call) -> Value:
    """Evaluate a call and record its settings."""
    if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
        return _super(run, node)
    function = run.evaluate(run, node.func)
    given = _given(run, node)
    called, given = _opened(function, given)
    name = called.data.name if called is not function and isinstance(called.data, External) else ""
    name = name or shown_name(run, node.func, called)
    if isinstance(called.data, Method) and isinstance(called.data.of.data, (Table, Row, str)):
        return call(run, called, given.values, given.named, node)  # `config.freeze()` does not freeze a layer
    if not isinstance(called.data, Function):
        result = call(run, called, given.values, given.named, node, is_open=given.is_open)
        if isinstance(result.data, Made) and run.frame.scope.parent is None and not run.frame.scope.is_main:
            result.data.untold.append(run.telling.later(run, name, node, given))
        else:
            # A script class may share a library's name but not its parameter order.
            told = Given(keywords=given.keywords) if isinstance(called.data, Class) else given
            run.telling.call(run, name, node, told)
        return result
    before = run.followed.get(called.data.node, 0)
    result = call(run, called, given.values, given.named, node, is_open=given.is_open)
    followed = run.followed.get(called.data.node, 0) > before
    # Arguments of the script's own functions are recorded where the function uses them.
    run.telling.call(run, name, node, Given() if followed else given)
    return result


def call(
    run: Run,
    function: Value,
    positional: list[Value],
    keywords: dict[str, Value],
    node: ast.expr,
    *,
    is_open: bool = False,
) -> Value:
    """Return the value of a call; ``is_open`` if there are further, unknown arguments."""
    data = function.data
    if isinstance(data, Function):
        return call_function(run, data, positional, keywords, node, assumed=is_open)
    if isinstance(data, Class):
        return instantiate(run, function, positional, keywords, node, assumed=is_open)
    if isinstance(data, Partial):
        return call(run, data.function, [*data.positional, *positional], {**data.keywords, **keywords}, node)
    if isinstance(data, Method):
        return call_method(run, data, positional, keywords, node)
    if isinstance(data, External):
        return call_library(run, data, positional, keywords, node)
    if isinstance(data, Instance):
        own = look_up(data.of, "__call__")
        if own is not None and isinstance(own.data, Function):
            return call_function(run, own.data, [function, *positional], keywords, node)
    return run.unknown(node)


def _given(run: Run, node: ast.Call) -> Given:
    """The arguments, with `*row` and `**table` expanded as far as known."""
    given = Given()
    for each in node.args:
        value = run.evaluate(run, each)
        if not isinstance(each, ast.Starred):
            given.positional.append((value, each))
        elif isinstance(value.data, Row) and "items" in value.data.cell:
            given.positional.extend((item, each) for item in value.data.items)
        else:
            given.is_open = True
            break
    for keyword in node.keywords:
        if keyword.arg is not None:
            argument = keyword.value
            value = run.telling.under(run, keyword.arg, partial(run.evaluate, run, argument))
            given.keywords[keyword.arg] = (value, argument)
            continue
        more = run.evaluate(run, keyword.value)
        if isinstance(more.data, Table):
            given.keywords.update({str(key): (each, None) for key, each in more.data.entries.items()})
        else:
            given.is_open = True
    return given


def _opened(function: Value, given: Given) -> tuple[Value, Given]:
    """Expand a partial into a call of its function."""
    for _ in range(4):
        if not isinstance(function.data, Partial):
            break
        before = function.data
        whole = Given(is_open=given.is_open)
        whole.positional = [*((each, None) for each in before.positional), *given.positional]
        whole.keywords = {**{name: (each, None) for name, each in before.keywords.items()}, **given.keywords}
        function, given = before.function, whole
    return function, given


def _super(run: Run, node: ast.Call) -> Value:
    for frame in reversed(run.frames):
        if frame.function is not None and frame.function.owner is not None and frame.function.bound is not None:
            return run.value(Super(frame.function.bound, frame.function.owner), node)
    return run.value(Unknown(), node)
