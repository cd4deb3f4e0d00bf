"""Execute the statements of a script. Branches: the one taken if known, else all. Loops: once, or by item if few."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from stayfinite.readers.configs.program.expressions import (
    assign,
    assign_unknown,
    define_class,
    evaluate,
    function_defaults,
    unpacked,
)
from stayfinite.readers.configs.program.files import follow_import, follow_import_from
from stayfinite.readers.configs.program.names import (
    attribute,
    bind,
    computed,
    dotted_name,
    entry,
    set_attribute,
    set_entry,
    truth,
)
from stayfinite.readers.configs.program.state import DEEPEST, MISSING, Function, Instance, Run, Table, Value, items_of

_ENDS = frozenset({"exit", "quit", "_exit", "abort", "print_help", "error"})
_MOST_DISMISSED = 5_000


def follow_if(run: Run, statement: ast.If) -> bool:
    """`if` with all its `elif`."""
    open_branches: list[list[ast.stmt]] = []
    node: ast.If | None = statement
    rest: list[ast.stmt] = []
    while node is not None:
        condition = run.evaluate(run, node.test)
        ends = _ends_the_program(node.body)
        taken = False if ends else truth(condition)
        if taken and condition.assumed and any(isinstance(each, ast.Return) for each in node.body):
            taken = None  # the defaults would leave the function; a real run passes other values
        following = node.orelse
        if taken:
            dismiss(run, following)
            rest = node.body
            break
        if taken is False and condition.assumed and not ends and _waits_for_a_value(run, node.test):
            taken = None  # `if args.train_data:` with default None: a real run passes a value
        if taken is False:
            dismiss(run, node.body)
        else:
            open_branches.append(node.body)
        node = following[0] if len(following) == 1 and isinstance(following[0], ast.If) else None
        rest = [] if node is not None else following
    if not open_branches:
        return run.execute(run, rest)
    return run.either([_branch(run, body) for body in (*open_branches, rest)])


def follow_match(run: Run, statement: ast.Match) -> bool:
    """`match`: decided if the subject and the patterns are plain values."""
    subject = run.evaluate(run, statement.subject)
    for case in statement.cases:
        fits = _fits(run, case.pattern, subject) if case.guard is None else None
        if fits:
            return run.execute(run, case.body)
        if fits is None:
            for each in ast.walk(case.pattern):
                if isinstance(each, (ast.MatchAs, ast.MatchStar)) and each.name:
                    bind(run, each.name, run.unknown(each))
            return run.either([_branch(run, each.body) for each in statement.cases])
    return False


def follow_try(run: Run, statement: ast.Try | ast.TryStar) -> bool:
    """The `try` body succeeds, or one of the handlers runs."""
    handlers = [_branch(run, handler.body) for handler in statement.handlers]
    body = [*statement.body, *statement.orelse]

    def tried() -> bool:
        return run.execute(run, body)

    left = run.either([tried, *handlers]) if handlers else tried()
    return run.execute(run, statement.finalbody) or left


def dismiss(run: Run, body: list[ast.stmt]) -> None:
    """Skip a branch: functions that only it calls are not called."""
    seen = 0
    for statement in body:
        for node in ast.walk(statement):
            seen += 1
            if seen > _MOST_DISMISSED:
                return
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found = run.frame.scope.find(node.func.id)
                if found is not None and isinstance(found.data, Function):
                    run.dismissed.add(found.data.node)


def _branch(run: Run, body: list[ast.stmt]) -> Callable[[], bool]:
    def follow() -> bool:
        run.frame.uncertain += 1
        try:
            return run.execute(run, body)
        finally:
            run.frame.uncertain -= 1

    return follow


def _fits(run: Run, pattern: ast.pattern, subject: Value) -> bool | None:
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None:
        return True
    if isinstance(pattern, ast.MatchOr):
        found = [_fits(run, each, subject) for each in pattern.patterns]
        return True if True in found else None if None in found else False
    if not subject.is_scalar:
        return None
    if isinstance(pattern, ast.MatchValue):
        value = run.evaluate(run, pattern.value)
        return bool(value.data == subject.data) if value.is_scalar else None
    return subject.data is pattern.value if isinstance(pattern, ast.MatchSingleton) else None


def _ends_the_program(body: list[ast.stmt]) -> bool:
    """Whether a branch raises or exits: a training run does not take it."""
    for statement in body:
        if isinstance(statement, ast.Raise):
            return True
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            name = dotted_name(statement.value.func, {})
            if name.rpartition(".")[2] in _ENDS and name.partition(".")[0] not in {"logger", "logging", "log"}:
                return True
    return False


def _waits_for_a_value(run: Run, test: ast.expr) -> bool:
    """Whether a condition tests an argument that defaults to None."""
    with run.telling.silence():
        asked = [each for each in ast.walk(test) if isinstance(each, (ast.Name, ast.Attribute))][:20]
        values = [run.evaluate(run, each) for each in asked]
    return any(each.data is None and each.assumed for each in values)


_FEW, _MOST_ITEMS = 4, 100  # per loop, and for nested loops together
_MOST_UNROLLED = 5_000  # statement parts that an unrolled loop may reach
_MOST_NODES = 20_000


def follow_for(run: Run, statement: ast.For | ast.AsyncFor) -> bool:
    """`for`: each of a few known items in turn; otherwise once, with everything it changes unknown."""
    over = run.evaluate(run, statement.iter)
    items = items_of(over)
    rounds = run.rounds * len(items or ())
    if items is not None and not run.spent and rounds <= _MOST_ITEMS and _is_short(items, statement.body):
        before, run.rounds = run.rounds, max(rounds, 1)
        for item in items:
            assign(run, statement.target, item)
            run.execute(run, statement.body)
        run.rounds = before
        return run.execute(run, statement.orelse)
    _forget(run, statement.body)
    assign_unknown(run, statement.target, over)
    run.either([lambda: run.execute(run, statement.body), lambda: False])
    return run.execute(run, statement.orelse)


def follow_while(run: Run, statement: ast.While) -> bool:
    """`while`: once, with everything it changes unknown."""
    if truth(run.evaluate(run, statement.test)) is False:
        return run.execute(run, statement.orelse)
    _forget(run, statement.body)
    run.either([lambda: run.execute(run, statement.body), lambda: False])
    return run.execute(run, statement.orelse)


def _is_short(items: list[Value], body: list[ast.stmt]) -> bool:
    """Whether a loop is short enough to unroll and has no early exit."""
    nodes = [node for each in body for node in ast.walk(each)]
    if len(items) > _FEW and len(items) * len(nodes) > _MOST_UNROLLED:
        return False
    return not any(isinstance(node, (ast.Break, ast.Continue, ast.Return)) for node in nodes)


def _forget(run: Run, body: list[ast.stmt]) -> None:
    """Make everything that a loop assigns unknown: an earlier iteration may have changed it."""
    seen = 0
    for statement in body:
        for node in ast.walk(statement):
            seen += 1
            if seen > _MOST_NODES:
                return
            if not isinstance(getattr(node, "ctx", None), ast.Store):
                continue
            if isinstance(node, ast.Name):
                if run.frame.scope.owner_of(node.id).names.get(node.id) is not None:
                    bind(run, node.id, run.unknown(node))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                holder = run.frame.scope.find(node.value.id)
                if holder is not None and isinstance(holder.data, Instance) and node.attr in holder.data.attributes:
                    set_attribute(run, holder, node.attr, run.unknown(node))
            elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                holder = run.frame.scope.find(node.value.id)
                if holder is not None and isinstance(holder.data, Table) and isinstance(node.slice, ast.Constant):
                    set_entry(run, holder, run.value(node.slice.value, node), run.unknown(node))


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
        alike = len(parts) == len(target.elts)
        for position, (each, item) in enumerate(unpacked(run, target, value)):
            _give(run, each, item, parts[position] if alike else written)
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
    ast.Assign: _assignment, ast.AnnAssign: _annotated, ast.AugAssign: _augmented, ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function, ast.ClassDef: define_class, ast.Return: _return, ast.With: _with,
    ast.AsyncWith: _with, ast.Expr: _expression, ast.If: follow_if, ast.Match: follow_match, ast.Try: follow_try,
    ast.TryStar: follow_try, ast.For: follow_for, ast.AsyncFor: follow_for, ast.While: follow_while,
    ast.Import: follow_import, ast.ImportFrom: follow_import_from, ast.Global: _outer, ast.Nonlocal: _outer,
    ast.Assert: _parts, ast.Delete: _parts, ast.Raise: _parts,
}  # fmt: skip
