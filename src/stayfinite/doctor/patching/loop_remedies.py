"""Candidate edits that move or add calls of a training loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.doctor.patching.statements import (
    Remedy,
    backward_statement,
    optimizer_name,
    statements_calling,
)
from stayfinite.doctor.patching.text import Text, called
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told


def _no_zero_grad(text: Text, _: Told, program: Program) -> Iterator[str]:
    backward = backward_statement(text, program)
    if backward is not None:
        name = optimizer_name(text, backward)
        yield text.changed([], [(backward.lineno, f"{text.indent(backward)}{name}.zero_grad()")])


def _cleared(text: Text, _: Told, program: Program) -> Iterator[str]:
    backward = backward_statement(text, program)
    if backward is None:
        return
    zeros = statements_calling(text, "zero_grad", backward)
    name = optimizer_name(text, backward)
    steps = [each for each in statements_calling(text, "step", backward) if text.source(each).startswith(name)]
    first = text.indent(backward)
    after = (backward.end_lineno or backward.lineno) + 1
    late = [each for each in steps if each.lineno < backward.lineno]
    wrong = [each for each in zeros if each.lineno > backward.lineno]
    if late:
        yield text.changed([*late], [(after, f"{first}{name}.step()")])
    yield text.changed([*wrong], [(backward.lineno, f"{first}{name}.zero_grad()")])


def _double_step(text: Text, _: Told, program: Program) -> Iterator[str]:
    backward = backward_statement(text, program)
    if backward is not None:
        name = optimizer_name(text, backward)
        steps = [each for each in statements_calling(text, "step", backward) if text.source(each).startswith(name)]
        if len(steps) > 1:
            yield text.changed([steps[-1]], [])


def _accumulation(text: Text, top: Told, program: Program) -> Iterator[str]:
    backward = backward_statement(text, program)
    for node in () if backward is None else ast.walk(backward):
        if isinstance(node, ast.Call) and called(node) == "backward" and isinstance(node.func, ast.Attribute):
            count = top.finding.fix.partition("/")[2].strip().split(")")[0] or "2"
            yield text.with_node(node.func.value, f"({text.source(node.func.value)} / {count})")


def _mode(text: Text, top: Told, program: Program) -> Iterator[str]:
    """Add ``train()`` before the loop over batches, ``eval()`` before the evaluation."""
    backward = backward_statement(text, program)
    if backward is None:
        return
    statement = text.statement_at(top.place[1]) if top.place[1] else None
    name = _model_name(text, statement or backward)
    loop = text.loop_round(backward)
    head: ast.stmt = loop if loop is not None else backward
    function = text.function_round(backward)
    if loop is None and function is not None:
        head = function.body[0]
    training = (head.lineno, f"{text.indent(head)}{name}.train()")
    if "evaluated" in top.finding.evidence[0] and statement is not None:
        outer: ast.stmt = statement
        for parent in text.parents(statement):
            if isinstance(parent, ast.FunctionDef | ast.Module):
                break
            if isinstance(parent, ast.For | ast.While | ast.With) and not any(backward is n for n in ast.walk(parent)):
                outer = parent
        yield text.changed([], [(outer.lineno, f"{text.indent(outer)}{name}.eval()"), training])
    else:
        wrong = [
            node for node in statements_calling(text, "eval", backward)
            if node.lineno < backward.lineno and (loop is None or node.lineno >= loop.lineno - 3)
        ]  # fmt: skip
        yield text.changed([], [training])
        if loop is not None:
            inside = loop.body[0]
            yield text.changed([*wrong], [(inside.lineno, f"{text.indent(inside)}{name}.train()")])


def _model_name(text: Text, near: ast.stmt) -> str:
    known = {node.func.value for node in text.calls("train", "eval") if isinstance(node.func, ast.Attribute)}
    names = [text.source(each) for each in known]
    for node in ast.walk(near):
        if isinstance(node, ast.Call):
            source = text.source(node.func)
            if source in names or "model" in source or "net" in source:
                return source
    return names[0] if names else "model"


def _schedule(text: Text, top: Told, program: Program) -> Iterator[str]:
    statement = text.statement_at(top.place[1])
    backward = backward_statement(text, program)
    if statement is None or backward is None or not isinstance(statement, ast.Expr):
        return
    line = text.source(statement)
    inner = text.loop_round(backward)
    if "every batch" in top.finding.evidence[0] and "after every batch" not in top.finding.fix:
        if inner is not None and any(statement is node for node in ast.walk(inner)):
            last = inner.end_lineno or inner.lineno
            yield text.changed([statement], [(last + 1, f"{text.indent(inner)}{line}")])
            function = text.function_round(inner)
            if function is not None:
                body = function.body[-1]
                yield text.changed([statement], [(body.lineno, f"{text.indent(body)}{line}")])
    elif inner is not None:
        for step in statements_calling(text, "step", backward):
            if step is not statement:
                yield text.changed([statement], [((step.end_lineno or step.lineno) + 1, f"{text.indent(step)}{line}")])


LOOP_REMEDIES: dict[str, Remedy] = {
    "no-zero-grad": _no_zero_grad,
    "cleared-before-step": _cleared,
    "double-step": _double_step,
    "wrong-mode": _mode,
    "lr-schedule-bug": _schedule,
    "accumulation-unscaled": _accumulation,
}
