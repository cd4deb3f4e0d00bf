"""Resolve names: a script value, a declared default, or a library name."""

from __future__ import annotations

import ast

from stayfinite.readers.configs.program.joining import same
from stayfinite.readers.configs.program.state import Frame, Run
from stayfinite.readers.configs.program.values import External, Made, Unknown, Value

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
    return run.unknown(node, found.data.least) if isinstance(found.data, Unknown) else found


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
        run.frames.append(Frame(scope, line=run.frame.line))
        try:
            with run.telling.silence():
                values.append(run.evaluate(run, expression))
        finally:
            run.frames.pop()
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
