"""Classes of the script: fields and instance arguments."""

from __future__ import annotations

import ast

from stayfinite.readers.configs.program.attributes import lineage, look_up
from stayfinite.readers.configs.program.functions import call_function
from stayfinite.readers.configs.program.given import given_argument
from stayfinite.readers.configs.program.joining import copied
from stayfinite.readers.configs.program.names import bind
from stayfinite.readers.configs.program.state import Frame, Run, Scope
from stayfinite.readers.configs.program.values import Class, Function, Instance, Value

_MOST_MADE = 4


def define_class(run: Run, statement: ast.ClassDef) -> bool:
    """Evaluate a class body once."""
    bases = [run.evaluate(run, each) for each in statement.bases]
    for each in (*statement.decorator_list, *(keyword.value for keyword in statement.keywords)):
        run.evaluate(run, each)
    scope = Scope(run.frame.scope.origin, run.frame.scope, is_class=True)
    run.frames.append(Frame(scope, line=statement.lineno))
    try:
        run.execute(run, statement.body)
    finally:
        run.frames.pop()
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


def instantiate(
    run: Run,
    of: Value,
    positional: list[Value],
    keywords: dict[str, Value],
    node: ast.expr,
    *,
    assumed: bool = False,
) -> Value:
    """Create an instance, applying its `__init__` or its fields to the arguments."""
    owner: Class = of.data
    instance = Instance(owner, assumed=assumed)
    value = run.value(instance, node)
    if len(owner.made) < _MOST_MADE:
        owner.made.append(value)
    start = look_up(owner, "__init__")
    if start is not None and isinstance(start.data, Function):
        call_function(run, _bound(start.data, value), positional, keywords, node, assumed=assumed)
        return value
    names = [name for each in reversed(lineage(owner)) for name in each.fields]
    names = list(dict.fromkeys(names))
    given = {**dict(zip(names, positional, strict=False)), **keywords}
    if assumed:
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
                fresh.data, fresh.origin, fresh.line, fresh.node, assumed or default.assumed
            )
    after = look_up(owner, "__post_init__")
    if after is not None and isinstance(after.data, Function):
        call_function(run, _bound(after.data, value), [], {}, node)
    return value


def _bound(function: Function, instance: Value) -> Function:
    return Function(function.node, function.scope, function.defaults, function.owner, instance, function.kinds)
