"""Candidate edits for shuffling and running sums."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.doctor.patching.statements import (
    Remedy,
    backward_statement,
)
from stayfinite.doctor.patching.text import Text
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told


def _shuffle(text: Text, _: Told, __: Program) -> Iterator[str]:
    for call in text.calls("DataLoader"):
        given = [k for k in call.keywords if k.arg == "shuffle"]
        if given:
            if isinstance(given[0].value, ast.Constant) and given[0].value.value is False:
                yield text.with_node(given[0].value, "True")
        else:
            source = text.source(call)
            yield text.with_node(call, f"{source[:-1].rstrip().rstrip(',')}, shuffle=True)")


def _one_order(text: Text, top: Told, __: Program) -> Iterator[str]:
    statement = text.statement_at(top.place[1]) if top.place[1] else None
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Subscript):
        index = statement.value.slice
        others = [
            node for node in text.find(lambda n: isinstance(n, ast.Assign)) if node is not statement
            and isinstance(node.value, ast.Subscript) and node.lineno < statement.lineno
        ]  # fmt: skip
        for other in reversed(others):
            used = other.value.slice
            if isinstance(used, ast.Name) and isinstance(index, ast.Name) and used.id != index.id:
                yield text.with_node(index, used.id)
            elif isinstance(used, ast.Call) and isinstance(index, ast.Call):
                line = f"{text.indent(other)}order = {text.source(used)}"
                halfway = Text(text.with_node(index, "order"))
                again = halfway.statement_at(other.lineno)
                if isinstance(again, ast.Assign) and isinstance(again.value, ast.Subscript):
                    last = Text(halfway.with_node(again.value.slice, "order"))
                    yield last.changed([], [(other.lineno, line)])


def _reset(text: Text, _: Told, program: Program) -> Iterator[str]:
    """Set the running sum to 0 before the loop over batches."""
    backward = backward_statement(text, program)
    if backward is None:
        return
    sums = [
        node for node in text.find(lambda n: isinstance(n, ast.AugAssign))
        if isinstance(node.target, ast.Name) and "item" in text.source(node.value)
    ]  # fmt: skip
    loop = text.loop_round(backward)
    for node in sums:
        inner = text.loop_round(node)
        head = inner or loop
        if head is not None:
            yield text.changed([], [(head.lineno, f"{text.indent(head)}{node.target.id} = 0.0")])


DATA_REMEDIES: dict[str, Remedy] = {
    "unshuffled": _shuffle,
    "duplicate-rows": _shuffle,
    "labels-shuffled": _one_order,
    "metric-not-reset": _reset,
}
