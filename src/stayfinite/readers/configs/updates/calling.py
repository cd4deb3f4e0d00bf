"""What calls do: functions of the script are entered, its models made and called, all else is a library."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from stayfinite.readers.configs.program.names import dotted_name
from stayfinite.readers.configs.updates.library import library_call, method_of_thing
from stayfinite.readers.configs.updates.things import Class, Frame, Function, Tensor, Thing, Value, mixed, parts_of

if TYPE_CHECKING:
    from stayfinite.readers.configs.updates.expressions import Expressions

_DEEPEST = 14
_MOST_CALLS = 3_000
_MOST_SPREAD = 12


def called(run: Expressions, node: ast.Call) -> Value:
    """What a call returns."""
    last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    owner = run.value(node.func.value) if isinstance(node.func, ast.Attribute) else None
    if isinstance(node.func, ast.Name) and last == "super":
        return Tensor()
    if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
        return _parents(run, node, last)
    function = run.value(node.func) if not isinstance(node.func, (ast.Attribute, ast.Call)) else None
    if isinstance(node.func, ast.Attribute) and isinstance(owner, (Thing, Class)):
        function = run.attribute(node.func, owner)
    elif isinstance(node.func, ast.Call):
        function = run.value(node.func)
    given = _given(run, node)
    named = {each.arg or "**": run.value(each.value) for each in node.keywords}
    if isinstance(function, Class):
        return instantiate(run, function, node, given, named)
    if isinstance(function, Function):
        return entered(run, function, node, given, named)
    if isinstance(function, Thing) and function.kind == "module":
        return forwarded(run, function, node, given, named)
    if isinstance(function, Thing):
        return None
    if isinstance(function, Tensor) and isinstance(node.func, ast.Name) and last not in run.aliases:
        return mixed([function, *given, *named.values()], graph=run.graph)  # Tensor = torch.cuda.FloatTensor
    if isinstance(owner, Thing) and owner.kind != "leaf":
        known, value = method_of_thing(run, owner, last, node, given)
        if known:
            return value
    if last in ("backward", "manual_backward"):
        loss = given[0] if given and last == "backward" and owner is None else owner
        run.happens("backward", None, node, loss if last == "backward" else None)
        return None
    return library_call(run, node, last, owner, given, named)


def _given(run: Expressions, node: ast.Call) -> list[Value]:
    """The arguments; what `*values` holds is as many as are asked for."""
    found: list[Value] = []
    for each in node.args:
        value = run.value(each)
        if isinstance(each, ast.Starred) and isinstance(value, Tensor):
            found += [value] * _MOST_SPREAD
        elif isinstance(each, ast.Starred) and isinstance(value, Thing) and value.kind == "list" and not value.open:
            found += value.parts.values()
        else:
            found.append(value)
    return found


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _parents(run: Expressions, node: ast.Call, last: str) -> Value:
    """`super().__init__(width)`: the method of a base class in this script."""
    itself = run.frame.find("self")
    around = next((each for each in reversed(run.calls)), None)
    given = [run.value(each) for each in node.args]
    named = {each.arg or "**": run.value(each.value) for each in node.keywords}
    owner = itself.made_by if isinstance(itself, Thing) else None
    for _ in range(8):
        bases = [run.main.find(each.id) for each in owner.bases if isinstance(each, ast.Name)] if owner else []
        holds = owner is not None and around in owner.body
        owner = next((each.node for each in bases if isinstance(each, Class) and each.node is not owner), None)
        if holds or owner is None:
            break
    method = run.method(owner, last)
    if method is not None:
        return entered(run, Function(method, run.main, itself, is_method=True), node, given, named)
    return None


def instantiate(run: Expressions, made_of: Class, node: ast.Call, given: list[Value], named: dict[str, Value]) -> Thing:
    """An object of a class of the script."""
    bases = {dotted_name(each, run.aliases).rpartition(".")[2] for each in _lineage(run, made_of)}
    made = run.made("module" if bases & {"Module"} else "object", node, by=made_of.node)
    made.open = not bases <= {"Module", "object", "Dataset", "ABC", ""}
    start = run.method(made_of.node, "__init__")
    if start is not None:
        entered(run, Function(start, made_of.frame, made, is_method=True), node, given, named)
    return made


def _lineage(run: Expressions, made_of: Class, depth: int = 0) -> list[ast.expr]:
    found: list[ast.expr] = []
    for each in made_of.node.bases:
        inner = run.main.find(each.id) if isinstance(each, ast.Name) else None
        if isinstance(inner, Class) and inner is not made_of and depth < 8:
            found += _lineage(run, inner, depth + 1)
        else:
            found.append(each)
    return found


def forwarded(run: Expressions, model: Thing, node: ast.Call, given: list[Value], named: dict[str, Value]) -> Value:
    """`model(x)`."""
    run.happens("forward", model, node)
    forward = run.method(model.made_by, "forward")
    if forward is not None:
        return entered(run, Function(forward, run.main, model, is_method=True), node, given, named)
    values: list[Value] = [*given, *named.values()]
    if model.is_container:
        value: Value = values[0] if values else None
        for part in model.parts.values():
            value = forwarded(run, part, node, [value], {}) if isinstance(part, Thing) else None
        return replace(mixed([value]), known=False) if model.open else value
    if model.layer and not model.open:
        inside = frozenset(each for each in parts_of(model) if each.is_trained)
        before = mixed(values, graph=run.graph) if values else Tensor()
        return Tensor(before.sources | (inside if run.graph else frozenset()), before.seen | inside, before.known)
    return None


def entered(run: Expressions, function: Function, node: ast.AST, given: list[Value], named: dict[str, Value]) -> Value:
    """What a function of the script returns."""
    inner = function.node
    if inner in run.calls or len(run.calls) >= _DEEPEST or len(run.events) > _MOST_CALLS:
        run.happens("unknown", None, node)
        return None
    frame = Frame(function.frame)
    static = not isinstance(inner, ast.Lambda) and any(
        dotted_name(each, {}).endswith("staticmethod") for each in inner.decorator_list
    )
    bound: list[Value] = [function.owner] if function.is_method and not static else []
    _take_arguments(run, frame, inner.args, [*bound, *given], named)
    run.followed.add(inner)
    run.calls.append(inner)
    graph, names = run.graph, [] if isinstance(inner, ast.Lambda) else inner.decorator_list
    if any(dotted_name(each, {}).endswith(("no_grad", "inference_mode")) for each in names):
        run.graph = False
    try:
        with run.entered(frame):
            if isinstance(inner, ast.Lambda):
                return run.value(inner.body)
            run.body(inner.body)
    finally:
        run.graph = graph
        run.calls.pop()
    return _returned(frame.returned)


def _returned(values: list[Value]) -> Value:
    if len(values) > 1 and all(isinstance(each, Tensor) for each in values):
        return mixed(values)
    if not values:
        return Tensor()
    return values[0] if all(each is values[0] for each in values) else None


def _take_arguments(
    run: Expressions, frame: Frame, wanted: ast.arguments, given: list[Value], named: dict[str, Value]
) -> None:
    names = [each.arg for each in (*wanted.posonlyargs, *wanted.args)]
    defaults = dict(zip(names[len(names) - len(wanted.defaults) :], wanted.defaults, strict=False))
    defaults |= {
        each.arg: default for each, default in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True) if default
    }
    for place, name in enumerate([*names, *(each.arg for each in wanted.kwonlyargs)]):
        if place < len(given) and place < len(names):
            frame.names[name] = given[place]
        elif name in named:
            frame.names[name] = named[name]
        else:
            default = defaults.get(name)
            with run.entered(frame.outer or run.main):
                frame.names[name] = run.value(default) if default is not None else None
    if wanted.vararg is not None:
        frame.names[wanted.vararg.arg] = None
    if wanted.kwarg is not None:
        frame.names[wanted.kwarg.arg] = None
