"""Candidate edits by cause, likeliest first. Each is tried."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.doctor.patching.formula_remedies import FORMULA_REMEDIES
from stayfinite.doctor.patching.loop_remedies import LOOP_REMEDIES
from stayfinite.doctor.patching.loss_remedies import LOSS_REMEDIES
from stayfinite.doctor.patching.parameter_remedies import PARAMETER_REMEDIES
from stayfinite.doctor.patching.statements import (
    Remedy,
    backward_statement,
    number_in,
)
from stayfinite.doctor.patching.text import Text, called
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


NAMES = ("lr", "learning_rate", "eta", "alpha_lr")
KEYS = ("lr", "learning_rate")
FLAGS = ("--lr", "--learning-rate", "--learning_rate")


def _rate(text: Text, top: Told, _: Program) -> Iterator[str]:
    """Change the learning rate where it is a literal: in a call, variable, dict or flag."""
    lower = top.finding.cause == "lr-too-high"
    factors = (0.01, 0.001, 1e-4) if lower else (1e3, 1e5, 1e6)
    places = (place for node in ast.walk(text.tree) for place in _rates_at(text, node))
    numbers = [(place, rate) for place in places if (rate := number_in(place)) is not None]
    for place, rate in numbers[:2]:
        if rate == 0.0:
            yield text.with_node(place, "1e-3")
        else:
            for factor in factors:
                yield text.with_node(place, f"{rate * factor:g}")


def _rates_at(text: Text, node: ast.AST) -> Iterator[ast.expr]:
    """Expressions in a node that hold a learning rate."""
    if isinstance(node, ast.keyword):
        if node.arg in KEYS:
            yield node.value
    elif isinstance(node, ast.Assign):
        if any(isinstance(t, ast.Name) and t.id.lower() in NAMES for t in node.targets):
            yield node.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in KEYS:
                yield value
    elif isinstance(node, ast.Call) and called(node) == "add_argument":
        if any(isinstance(a, ast.Constant) and a.value in FLAGS for a in node.args):
            yield from (k.value for k in node.keywords if k.arg == "default")
    elif isinstance(node, ast.Call) and "optim" in text.source(node.func) and len(node.args) >= 2:
        yield node.args[1]


def _eps(text: Text, _: Told, __: Program) -> Iterator[str]:
    for keyword in text.find(lambda n: isinstance(n, ast.keyword) and n.arg == "eps"):
        if number_in(keyword.value) is not None:
            yield text.with_node(keyword.value, "1e-8")


RATE_REMEDIES: dict[str, Remedy] = {
    "lr-too-high": _rate,
    "lr-too-low": _rate,
    "lr-zero": _rate,
    "adam-eps-underflow": _eps,
}


REMEDIES: dict[str, Remedy] = {
    **LOOP_REMEDIES,
    **LOSS_REMEDIES,
    **FORMULA_REMEDIES,
    **RATE_REMEDIES,
    **PARAMETER_REMEDIES,
    **DATA_REMEDIES,
}


def texts_for(text: Text, top: Told, program: Program) -> Iterator[str]:
    """Candidate texts for a finding."""
    remedy = REMEDIES.get(top.finding.cause)
    if remedy is not None:
        yield from remedy(text, top, program)
