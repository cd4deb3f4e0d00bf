"""Branches: follow the one taken if known, otherwise all."""

from __future__ import annotations

import ast
from collections.abc import Callable

from stayfinite.readers.configs.program.names import bind, dotted_name
from stayfinite.readers.configs.program.operators import truth
from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.values import Function, Value

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
