"""Values that cannot be right where a loss is computed: a sigmoid given to a loss that applies one, roots below 0."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from stayfinite.readers.configs.program.names import dotted_name

Assigned = Sequence[tuple[str, ast.expr, tuple[int, ...], int]]
Statements = Sequence[tuple[ast.stmt, tuple[int, ...]]]

_APPLY_ONE = frozenset({"BCEWithLogitsLoss", "binary_cross_entropy_with_logits"})
_ROOTS = frozenset({"sqrt", "log", "log2", "log10", "rsqrt"})
_OF_ALL = frozenset({"mean", "max", "amax", "median"})


def sigmoids_twice(statements: Statements, assigned: Assigned, losses: set[str]) -> Iterator[tuple[str, int]]:
    """``(text, line)`` of each sigmoid whose result goes into a loss that applies one itself.

    ``losses`` are the names of such losses in the file.
    """
    for call, blocks in _calls(statements):
        if not call.args or not _applies_one(call, losses):
            continue
        given = call.args[0]
        if isinstance(given, ast.Name):
            before = [each for each in assigned if each[0] == given.id and each[3] < call.lineno]
            last = max(before, key=lambda each: each[3], default=None)
            if last is not None and last[2] == blocks[: len(last[2])] and _is_sigmoid(last[1]):
                yield f"{given.id} = {ast.unparse(last[1])[:80]} goes into a loss that applies a sigmoid", call.lineno
        elif _is_sigmoid(given):
            yield f"{ast.unparse(given)[:80]} goes into a loss that applies a sigmoid", call.lineno


def losses_with_sigmoid(assigned: Assigned) -> set[str]:
    """Names that stand for such a loss, and for nothing else."""
    made: dict[str, set[bool]] = {}
    for name, value, *_ in assigned:
        of_class = isinstance(value, ast.Call) and _last(value.func) in _APPLY_ONE
        made.setdefault(name, set()).add(of_class)
    return {name for name, kinds in made.items() if name and kinds == {True}}


def roots_below_zero(statements: Statements) -> Iterator[tuple[str, int]]:
    """``(text, line)`` of each root or logarithm of `x - x.mean()`, which is negative for some x."""
    for call, _ in _calls(statements):
        given = call.args[0] if call.args else None
        if _last(call.func) not in _ROOTS or not isinstance(given, ast.BinOp) or not isinstance(given.op, ast.Sub):
            continue
        taken = given.right.func if isinstance(given.right, ast.Call) else None
        if not isinstance(taken, ast.Attribute) or taken.attr not in _OF_ALL:
            continue
        if ast.dump(taken.value) == ast.dump(given.left):
            yield f"{ast.unparse(call)[:100]} is NaN: {ast.unparse(given)[:60]} is below 0 for some values", call.lineno


def _calls(statements: Statements) -> Iterator[tuple[ast.Call, tuple[int, ...]]]:
    for statement, blocks in statements:
        for part in ast.iter_child_nodes(statement):
            if isinstance(part, (ast.expr, ast.withitem)):
                yield from ((node, blocks) for node in ast.walk(part) if isinstance(node, ast.Call))


def _applies_one(call: ast.Call, losses: set[str]) -> bool:
    if isinstance(call.func, ast.Call):  # nn.BCEWithLogitsLoss()(x, y)
        return _last(call.func.func) in _APPLY_ONE
    return dotted_name(call.func, {}) in losses or _last(call.func) == "binary_cross_entropy_with_logits"


def _is_sigmoid(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _last(value.func) in ("sigmoid", "Sigmoid", "sigmoid_")


def _last(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
