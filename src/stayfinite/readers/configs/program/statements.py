"""Execute the statements of a script."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from stayfinite.readers.configs.program.attributes import attribute, entry, set_attribute, set_entry
from stayfinite.readers.configs.program.branches import follow_if, follow_match, follow_try
from stayfinite.readers.configs.program.classes import define_class
from stayfinite.readers.configs.program.expressions import assign, assign_unknown, evaluate, function_defaults
from stayfinite.readers.configs.program.loops import follow_for, follow_while
from stayfinite.readers.configs.program.modules import follow_import, follow_import_from
from stayfinite.readers.configs.program.names import bind
from stayfinite.readers.configs.program.operators import computed
from stayfinite.readers.configs.program.state import DEEPEST, Run
from stayfinite.readers.configs.program.store import MISSING
from stayfinite.readers.configs.program.values import Function, Row, Table, Value


def execute(run: Run, body: list[ast.stmt]) -> bool:
    """Execute statements; return whether they leave the function."""
    if run.depth > DEEPEST:
        return False
    run.depth += 1
    try:
        for statement in body:
            if run.telling.full:
                return False
            run.frame.line = statement.lineno
            run.frame.target = ""
            if isinstance(statement, (ast.Break, ast.Continue)):
                return False
            look = _KINDS.get(type(statement))
            if look is not None and look(run, statement):
                return True
        return False
    finally:
        run.depth -= 1


def _assignment(run: Run, statement: ast.Assign) -> bool:
    run.frame.target = _target_name(statement.targets[0])
    value = evaluate(run, statement.value)
    for target in statement.targets:
        _give(run, target, value, statement.value)
    return False


def _annotated(run: Run, statement: ast.AnnAssign) -> bool:
    if statement.value is not None:
        run.frame.target = _target_name(statement.target)
        _give(run, statement.target, evaluate(run, statement.value), statement.value)
    return False


def _give(run: Run, target: ast.expr, value: Value, written: ast.expr) -> None:
    """Assign, and record it if it is a setting."""
    if isinstance(target, (ast.Tuple, ast.List)):
        parts = written.elts if isinstance(written, (ast.Tuple, ast.List)) else []
        items = value.data.items if isinstance(value.data, Row) else []
        if len(items) != len(target.elts) or any(isinstance(each, ast.Starred) for each in target.elts):
            assign_unknown(run, target)
            return
        for position, (each, item) in enumerate(zip(target.elts, items, strict=True)):
            _give(run, each, item, parts[position] if len(parts) == len(items) else written)
        return
    if isinstance(target, ast.Name):
        bind(run, target.id, value)
        if not run.frame.scope.is_class:  # fields are recorded with their class
            run.telling.assignment(run, target, "", value, written)
    elif isinstance(target, ast.Attribute):
        set_attribute(run, evaluate(run, target.value), target.attr, value)
        run.telling.assignment(run, target, "", value, written)
    elif isinstance(target, ast.Subscript):
        holder, key = evaluate(run, target.value), evaluate(run, target.slice)
        set_entry(run, holder, key, value)
        if key.is_scalar:
            run.telling.assignment(run, target, str(key.data), value, written)


def _augmented(run: Run, statement: ast.AugAssign) -> bool:
    """`x += 1` for names, attributes and entries."""
    more = evaluate(run, statement.value)
    target = statement.target
    if isinstance(target, ast.Name):
        before = run.frame.scope.find(target.id)
        bind(run, target.id, _more(run, statement, before, more))
    elif isinstance(target, ast.Attribute):
        holder = evaluate(run, target.value)
        before = attribute(run, holder, target.attr, target)
        set_attribute(run, holder, target.attr, _more(run, statement, before, more))
    else:
        holder, key = evaluate(run, target.value), evaluate(run, target.slice)
        before = entry(run, holder, key, target)
        set_entry(run, holder, key, _more(run, statement, before, more))
    return False


def _more(run: Run, statement: ast.AugAssign, before: Value | None, more: Value) -> Value:
    if before is None:
        return run.unknown(statement)
    result = computed(statement.op, before.data, more.data)
    if result is MISSING:
        return run.unknown(statement)
    if isinstance(result, Table) and isinstance(before.data, Table):  # `kwargs |= {...}` changes the dict in place
        for key, each in result.entries.items():
            run.store.put(before.data.entries, key, each)
        return before
    return run.value(result, statement, before, more)


def _function(run: Run, statement: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    kinds = set()
    for decorator in statement.decorator_list:
        kinds.add(_target_name(decorator.func if isinstance(decorator, ast.Call) else decorator).rpartition(".")[2])
        evaluate(run, decorator)
    defaults = function_defaults(run, statement.args)
    function = Function(statement, run.frame.scope, defaults, kinds=frozenset(kinds))
    bind(run, statement.name, run.value(function, statement))
    if not run.frame.scope.is_class:
        run.functions.append(function)
    return False


def _return(run: Run, statement: ast.Return) -> bool:
    value = evaluate(run, statement.value) if statement.value is not None else run.value(None, statement)
    run.frame.returns.append(value)
    return run.frame.function is not None


def _with(run: Run, statement: ast.With | ast.AsyncWith) -> bool:
    for item in statement.items:
        value = evaluate(run, item.context_expr)
        if item.optional_vars is not None:
            assign(run, item.optional_vars, value)
    return execute(run, statement.body)


def _expression(run: Run, statement: ast.Expr) -> bool:
    evaluate(run, statement.value)
    return False


def _outer(run: Run, statement: ast.Global | ast.Nonlocal) -> bool:
    run.frame.scope.outer.update(statement.names)
    return False


def _parts(run: Run, statement: ast.stmt) -> bool:
    """`assert`, `del`, `raise`: follow the calls inside."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            evaluate(run, child)
    # A training run does not end here; outside of branches, reading continues.
    return isinstance(statement, ast.Raise) and run.in_doubt


def _target_name(target: ast.expr) -> str:
    """`ref_model` of `self.ref_model`; `config.lr` stays whole."""
    parts: list[str] = []
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        parts.append(target.attr if isinstance(target, ast.Attribute) else "")
        target = target.value
    parts.append(target.id if isinstance(target, ast.Name) else "")
    return ".".join(part for part in reversed(parts) if part)


_KINDS: dict[type[ast.stmt], Callable[[Run, Any], bool]] = {
    ast.Assign: _assignment,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: define_class,
    ast.Return: _return,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Expr: _expression,
    ast.If: follow_if,
    ast.Match: follow_match,
    ast.Try: follow_try,
    ast.TryStar: follow_try,
    ast.For: follow_for,
    ast.AsyncFor: follow_for,
    ast.While: follow_while,
    ast.Import: follow_import,
    ast.ImportFrom: follow_import_from,
    ast.Global: _outer,
    ast.Nonlocal: _outer,
    ast.Assert: _parts,
    ast.Delete: _parts,
    ast.Raise: _parts,
}
