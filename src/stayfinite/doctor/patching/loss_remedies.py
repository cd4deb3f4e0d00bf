"""Candidate edits for the inputs and sign of a loss."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.doctor.patching.statements import Remedy, backward_statement, owner_of
from stayfinite.doctor.patching.text import Text, called
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told


def _softmax(text: Text, _: Told, __: Program) -> Iterator[str]:
    layers = text.calls("Softmax", "LogSoftmax", "Sigmoid")
    functions = text.calls("softmax", "log_softmax", "sigmoid")
    for call in (*reversed(functions), *reversed(layers)):
        if called(call) in ("Softmax", "LogSoftmax", "Sigmoid"):
            yield text.with_node(call, "nn.Identity()" if "nn." in text.source(call) else "torch.nn.Identity()")
        elif isinstance(call.func, ast.Attribute) and text.source(call.func.value) not in (
            "F",
            "torch",
            "nn.functional",
            "torch.nn.functional",
        ):
            yield text.with_node(call, text.source(call.func.value))
        elif call.args:
            yield text.with_node(call, text.source(call.args[0]))


def _probabilities(text: Text, _: Told, __: Program) -> Iterator[str]:
    for old, new in (
        ("BCELoss", "BCEWithLogitsLoss"),
        ("NLLLoss", "CrossEntropyLoss"),
        ("binary_cross_entropy", "binary_cross_entropy_with_logits"),
        ("nll_loss", "cross_entropy"),
    ):
        calls = text.calls(old)
        if calls:
            changed = text.text
            for _each in calls:
                again = Text(changed)
                call = again.calls(old)[0]
                name = again.source(call.func)
                changed = again.with_node(call.func, name[: -len(old)] + new)
            yield changed


def _axis(text: Text, _: Told, __: Program) -> Iterator[str]:
    for call in text.calls("softmax", "log_softmax", "Softmax", "LogSoftmax"):
        for value in (*[k.value for k in call.keywords if k.arg == "dim"], *call.args[-1:]):
            if isinstance(value, ast.Constant) and value.value == 0:
                yield text.with_node(value, "1")


def _broadcast(text: Text, top: Told, _: Program) -> Iterator[str]:
    statement = text.statement_at(top.place[1])
    if statement is None:
        return
    for node in ast.walk(statement):
        pair: tuple[ast.expr, ast.expr] | None = None
        if isinstance(node, ast.Call) and len(node.args) >= 2 and called(node) not in ("where", "stack", "cat"):
            pair = node.args[0], node.args[1]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            pair = node.left, node.right
        elif isinstance(node, ast.Compare) and len(node.comparators) == 1:
            pair = node.left, node.comparators[0]
        if pair is not None:
            one, two = text.source(pair[0]), text.source(pair[1])
            wrapped = two if isinstance(pair[1], ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({two})"
            other = one if isinstance(pair[0], ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({one})"
            yield text.with_node(pair[1], f"{wrapped}.view_as({one})")
            yield text.with_node(pair[0], f"{other}.view_as({two})")


def _sign(text: Text, top: Told, program: Program) -> Iterator[str]:
    for keyword in text.find(lambda n: isinstance(n, ast.keyword) and n.arg == "maximize"):
        yield text.with_node(keyword.value, "False")
    for place in (
        top.place[1],
        *(each[1] for each in program.losses),
        *(each.place[1] for each in program.loss_calls.values()),
    ):
        statement = text.statement_at(place)
        for node in () if statement is None else ast.walk(statement):
            if (
                isinstance(node, ast.UnaryOp)
                and isinstance(node.op, ast.USub)
                and not isinstance(node.operand, ast.Constant)
            ):
                yield text.with_node(node, text.source(node.operand))


def _detached(text: Text, _: Told, program: Program) -> Iterator[str]:
    """Keep the graph: no ``detach``, ``item``, ``data`` or new tensor before the loss."""
    for call in text.calls("tensor"):
        if any(k.arg == "requires_grad" for k in call.keywords) or "item" in text.source(call):
            inner = call.args[0]
            subject = (
                inner.func.value
                if isinstance(inner, ast.Call) and called(inner) == "item" and isinstance(inner.func, ast.Attribute)
                else inner
            )
            yield text.with_node(call, text.source(subject))
    for call in text.calls("detach"):
        if isinstance(call.func, ast.Attribute):
            yield text.with_node(call, text.source(call.func.value))
    for node in text.find(lambda n: isinstance(n, ast.Attribute) and n.attr == "data" and isinstance(n.ctx, ast.Load)):
        changed = Text(text.with_node(node, text.source(node.value)))
        yield _without_requires_grad(changed)
    backward = backward_statement(text, program)
    for node in text.find(lambda n: isinstance(n, ast.With)):
        off = "no_grad" in text.source(node.items[0].context_expr)
        if (
            off
            and backward is not None
            and text.function_round(node) is text.function_round(backward)
            and node.lineno < backward.lineno
        ):
            yield text.with_node(node.items[0].context_expr, "torch.enable_grad()")


def _without_requires_grad(text: Text) -> str:
    """Replace the first ``x.requires_grad_()`` with ``x``."""
    calls = text.calls("requires_grad_")
    owner = owner_of(calls[0]) if calls else None
    return text.text if owner is None else text.with_node(calls[0], text.source(owner))


def _metric(text: Text, top: Told, program: Program) -> Iterator[str]:
    if top.place[1]:
        yield from _broadcast(text, top, program)
    for node in text.find(lambda n: isinstance(n, ast.AugAssign)):
        if isinstance(node.value, ast.Constant) and node.value.value == 1 and "total" in text.source(node.target):
            for other in text.find(lambda n: isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Eq)):
                yield text.with_node(node.value, f"len({text.source(other.comparators[0])})")


LOSS_REMEDIES: dict[str, Remedy] = {
    "softmax-before-cross-entropy": _softmax,
    "probability-loss-on-logits": _probabilities,
    "softmax-axis": _axis,
    "loss-broadcast": _broadcast,
    "metric-impossible": _metric,
    "flipped-sign": _sign,
    "detached-loss": _detached,
}
