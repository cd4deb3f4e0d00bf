"""Candidate edits for the optimizer's parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.doctor.patching.statements import (
    Remedy,
    backward_statement,
)
from stayfinite.doctor.patching.text import Text, called
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told


def _held(text: Text, top: Told, program: Program) -> Iterator[str]:
    """Pass all models to the optimizer, or build it right before the loop."""
    statement = text.statement_at(top.place[1]) if top.place[1] else None
    backward = backward_statement(text, program)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call) or not statement.value.args:
        return
    first = statement.value.args[0]
    for node in ast.walk(first):
        # model.head.parameters() -> model.parameters()
        if isinstance(node, ast.Call) and called(node) == "parameters" and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Attribute) and text.source(owner.value) != "self":
                yield text.with_node(owner, text.source(owner.value))
            if isinstance(owner, ast.Subscript):
                name = text.source(owner.value)
                yield text.with_node(first, f"[p for part in {name} for p in part.parameters()]")
    models = _model_variables(text)
    joined = " + ".join(f"list({name}.parameters())" for name in models)
    if len(models) > 1 and "self" not in text.source(statement):
        yield text.with_node(first, joined)
        names = [n for n in text.find(lambda n: isinstance(n, ast.Assign)) if isinstance(first, ast.Name)
                 and any(isinstance(t, ast.Name) and t.id == first.id for t in n.targets)]  # fmt: skip
        for assign in names:
            yield text.with_node(assign.value, joined)
        for name in models:
            yield text.with_node(first, f"{name}.parameters()")
    if "self" in text.source(statement):
        for node in ast.walk(first):
            if isinstance(node, ast.Call) and called(node) == "parameters":
                yield _last_in_function(text, statement)
    head = backward
    if backward is not None:
        for parent in text.parents(backward):
            if isinstance(parent, ast.For | ast.While):
                head = parent
        if head is not None and text.function_round(head) is text.function_round(statement):
            line = text.source(statement)
            yield text.changed([statement], [(head.lineno, f"{text.indent(head)}{line}")])
    following = _next_statements(text, statement)
    if following is not None:
        yield text.changed(
            [statement],
            [((following.end_lineno or following.lineno) + 1, f"{text.indent(statement)}{text.source(statement)}")],
        )


def _last_in_function(text: Text, statement: ast.Assign) -> str:
    """Move a statement of ``__init__`` to its end, using ``self.model``."""
    function = text.function_round(statement)
    if function is None:
        return text.text
    line = text.source(statement).replace("(model.parameters()", "(self.model.parameters()")
    last = function.body[-1]
    return text.changed([statement], [((last.end_lineno or last.lineno) + 1, f"{text.indent(statement)}{line}")])


def _next_statements(text: Text, statement: ast.stmt) -> ast.stmt | None:
    """The first later statement that rebinds a model."""
    models = set(_model_variables(text))
    found = [
        node for node in text.find(lambda n: isinstance(n, ast.Assign))
        if node.lineno > statement.lineno and any(isinstance(t, ast.Name) and t.id in models for t in node.targets)
    ]  # fmt: skip
    return found[0] if found else None


def _model_variables(text: Text) -> list[str]:
    classes = {
        node.name for node in text.find(lambda n: isinstance(n, ast.ClassDef))
        if any("Module" in text.source(base) for base in node.bases)
    }  # fmt: skip
    names: list[str] = []
    for node in text.find(lambda n: isinstance(n, ast.Assign)):
        targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for target, value in zip(targets, values, strict=False):
            made = {called(n) for n in ast.walk(value) if isinstance(n, ast.Call)}
            if isinstance(target, ast.Name) and made & (classes | {"Sequential", "ModuleList"}):
                names.append(target.id)
    return list(dict.fromkeys(names))


PARAMETER_REMEDIES: dict[str, Remedy] = {
    "params-not-in-optimizer": _held,
}
