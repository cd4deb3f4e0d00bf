"""Candidate edits of a loss: its inputs, its sign, its graph, and formulas outside their safe range."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.doctor.patching.text import Case, Remedy, Text, called, owner_of

SIMPLE = ast.Name | ast.Attribute | ast.Call | ast.Subscript
"""Expressions that need no parentheses before a dot."""
ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.FloorDiv | ast.Mod | ast.Pow | ast.MatMult
"""Operators that bind at least as tightly as a plus."""


def with_method(text: Text, node: ast.expr, call: str) -> str:
    """The text with a method called on an expression: `log(p)` becomes `log(p.clamp_min(1e-6))`."""
    source = text.source(node)
    if isinstance(node, SIMPLE):
        return text.with_node(node, f"{source}.{call}")
    if _in_parentheses(text, node):  # the call goes behind the parenthesis that is there, which gives one back
        return text.with_node(node, f"{source}).{call.removesuffix(')')}")
    return text.with_node(node, f"({source}).{call}")


def with_added(text: Text, node: ast.expr, number: str) -> str:
    """The text with a number added to an expression: `x / y` becomes `x / (y + 1e-6)`."""
    added = f"{text.source(node)} + {number}" if _sums(node) else f"({text.source(node)}) + {number}"
    return text.with_node(node, added if _stands_alone(text, node) or _in_parentheses(text, node) else f"({added})")


def _sums(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ARITHMETIC)
    return isinstance(node, SIMPLE | ast.Constant | ast.UnaryOp) and not isinstance(getattr(node, "op", None), ast.Not)


def _stands_alone(text: Text, node: ast.expr) -> bool:
    """Whether an expression is a whole argument or a whole side of an assignment."""
    parent = next(text.parents(node), None)
    if isinstance(parent, ast.Call):
        return node in parent.args
    return isinstance(parent, ast.keyword | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr)


def _in_parentheses(text: Text, node: ast.expr) -> bool:
    """Whether an expression has parentheses of its own, not those of a call."""
    return not _stands_alone(text, node) and text.before(node).endswith("(") and text.after(node).startswith(")")


FUNCTIONAL = ("F", "torch", "nn.functional", "torch.nn.functional")
"""Modules of functions: `F.softmax(x)` is no method of F."""
SMALL = "1e-6"
"""Bound of an input, as in the advice."""
TINY = "1e-8"
"""Added to a norm, as in the advice."""
ROOTS = (0.5, 0.25, -0.5, -1, -2)
"""Exponents with a singularity at 0."""


def _softmax(case: Case) -> Iterator[str]:
    text = case.text
    functions = text.calls("softmax", "log_softmax", "sigmoid")
    for call in (*reversed(functions), *reversed(text.calls("Softmax", "LogSoftmax", "Sigmoid"))):
        owner = owner_of(call)
        if call not in functions:
            yield text.with_node(call, "nn.Identity()" if "nn." in text.source(call) else "torch.nn.Identity()")
        elif owner is not None and text.source(owner) not in FUNCTIONAL:
            yield text.with_node(call, text.source(owner))
        elif call.args:
            yield text.with_node(call, text.source(call.args[0]))


def _probabilities(case: Case) -> Iterator[str]:
    for old, new in (
        ("BCELoss", "BCEWithLogitsLoss"),
        ("NLLLoss", "CrossEntropyLoss"),
        ("binary_cross_entropy", "binary_cross_entropy_with_logits"),
        ("nll_loss", "cross_entropy"),
    ):
        text = case.text
        while calls := text.calls(old):
            function = calls[0].func
            text = Text(text.with_node(function, text.source(function)[: -len(old)] + new))
        if text is not case.text:
            yield text.text


def _axis(case: Case) -> Iterator[str]:
    for call in case.text.calls("softmax", "log_softmax", "Softmax", "LogSoftmax"):
        for value in (*[k.value for k in call.keywords if k.arg == "dim"], *call.args[-1:]):
            if isinstance(value, ast.Constant) and value.value == 0:
                yield case.text.with_node(value, "1")


def _broadcast(case: Case) -> Iterator[str]:
    text = case.text
    for node in () if case.statement is None else ast.walk(case.statement):
        pair: list[ast.expr] = []
        if isinstance(node, ast.Call) and called(node) not in ("where", "stack", "cat"):
            pair = node.args[:2]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            pair = [node.left, node.right]
        elif isinstance(node, ast.Compare) and len(node.comparators) == 1:
            pair = [node.left, node.comparators[0]]
        if len(pair) == 2:
            for changed, other in (pair[::-1], pair):
                source = text.source(changed)
                wrapped = source if isinstance(changed, SIMPLE) else f"({source})"
                yield text.with_node(changed, f"{wrapped}.view_as({text.source(other)})")


def _sign(case: Case) -> Iterator[str]:
    text, program = case.text, case.program
    for keyword in text.nodes(ast.keyword):
        if keyword.arg == "maximize":
            yield text.with_node(keyword.value, "False")
    for _, line in (case.top.place, *program.losses, *(each.place for each in program.loss_calls.values())):
        statement = text.statement_at(line)
        for node in () if statement is None else ast.walk(statement):
            negates = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
            if isinstance(node, ast.UnaryOp) and negates and not isinstance(node.operand, ast.Constant):
                yield text.with_node(node, text.source(node.operand))


def _detached(case: Case) -> Iterator[str]:
    """Keep the graph: no ``detach``, ``item``, ``data`` or new tensor before the loss."""
    text, backward = case.text, case.backward
    for call in text.calls("tensor"):
        if any(k.arg == "requires_grad" for k in call.keywords) or "item" in text.source(call):
            inner = call.args[0]
            subject = owner_of(inner) if called(inner) == "item" else None
            yield text.with_node(call, text.source(subject or inner))
    for call in text.calls("detach"):
        if (owner := owner_of(call)) is not None:
            yield text.with_node(call, text.source(owner))
    for node in text.nodes(ast.Attribute):
        if node.attr == "data" and isinstance(node.ctx, ast.Load):
            yield _without_requires_grad(Text(text.with_node(node, text.source(node.value))))
    if backward is None:
        return
    for block in text.nodes(ast.With):
        context = block.items[0].context_expr
        beside = text.function_round(block) is text.function_round(backward) and block.lineno < backward.lineno
        if beside and "no_grad" in text.source(context):
            yield text.with_node(context, "torch.enable_grad()")


def _without_requires_grad(text: Text) -> str:
    """Replace the first ``x.requires_grad_()`` with ``x``."""
    calls = text.calls("requires_grad_")
    owner = owner_of(calls[0]) if calls else None
    return text.text if owner is None else text.with_node(calls[0], text.source(owner))


def _metric(case: Case) -> Iterator[str]:
    text = case.text
    yield from _broadcast(case)
    for node in text.nodes(ast.AugAssign):
        if isinstance(node.value, ast.Constant) and node.value.value == 1 and "total" in text.source(node.target):
            for other in text.nodes(ast.Compare):
                if isinstance(other.ops[0], ast.Eq):
                    yield text.with_node(node.value, f"len({text.source(other.comparators[0])})")


def _formula(case: Case) -> Iterator[str]:
    """Guard the expressions of the line where bad values begin."""
    text, line = case.text, case.top.place[1]
    for node in () if case.statement is None else ast.walk(case.statement):
        if not getattr(node, "lineno", line + 1) <= line <= getattr(node, "end_lineno", 0):
            continue
        if isinstance(node, ast.Call):
            yield from _guarded_call(text, node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            right = text.source(node.right)
            yield with_method(text, node.right, f"clamp_min({SMALL})")
            yield with_added(text, node.right, SMALL)
            yield text.with_node(node.right, f"max({right}, 1)")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and getattr(node.right, "value", 1) in ROOTS:
            yield with_added(text, node.left, SMALL)


def _guarded_call(text: Text, node: ast.Call) -> Iterator[str]:
    name, owner = called(node), owner_of(node)
    method = owner is not None and text.source(owner) not in ("torch", "F", "math", "np", "torch.nn.functional")
    subject = owner if method else node.args[0] if node.args else None
    if subject is None:
        return
    inner = text.source(subject)
    if name in ("sqrt", "rsqrt", "log", "log2", "log10", "reciprocal", "pow"):
        yield with_method(text, subject, f"clamp_min({SMALL})")
        yield with_added(text, subject, SMALL)
    elif name in ("exp", "expm1", "sinh", "cosh"):
        yield with_method(text, subject, "clamp(max=20.0)")
        yield text.with_node(subject, f"({inner} - ({inner}).detach().amax(-1, keepdim=True))")
    elif name in ("acos", "asin", "atanh"):
        yield with_method(text, subject, f"clamp(-1 + {SMALL}, 1 - {SMALL})")
    elif name in ("norm", "std", "dist", "cdist"):
        yield with_added(text, node, TINY)
        if name == "norm":
            rest = ", ".join(f"{k.arg}={text.source(k.value)}" for k in node.keywords)
            yield text.with_node(node, f"(({inner}).pow(2).sum({rest}) + 1e-12).sqrt()")
        if name == "std":
            yield text.with_node(node, f"({inner}).std(unbiased=False)")
    elif name == "where" and len(node.args) == 3:
        for branch in node.args[1:]:
            for call in ast.walk(branch):
                if isinstance(call, ast.Call) and called(call) in ("log", "sqrt", "exp") and call.args:
                    argument = call.args[0]
                    yield with_method(text, argument, f"clamp_min({SMALL})")


def _mask(case: Case) -> Iterator[str]:
    """Replace every ``float("-inf")``."""
    text = case.text
    while infinite := [call for call in text.calls("float") if call.args and "inf" in _constant(call.args[0])]:
        text = Text(text.with_node(infinite[0], "-1e9"))
    if text is not case.text:
        yield text.text


def _constant(node: ast.AST) -> str:
    """A constant as text; empty for anything else."""
    return str(getattr(node, "value", "")) if isinstance(node, ast.Constant) else ""


LOSS_REMEDIES: dict[str, Remedy] = {
    "softmax-before-cross-entropy": _softmax,
    "probability-loss-on-logits": _probabilities,
    "softmax-axis": _axis,
    "loss-broadcast": _broadcast,
    "metric-impossible": _metric,
    "flipped-sign": _sign,
    "detached-loss": _detached,
    "loss-formula-singularity": _formula,
    "naive-exp": _formula,
    "where-nan-branch": _formula,
    "norm-eps": _formula,
    "nan-loss": _formula,
    "all-labels-masked": _formula,
    "attention-fully-masked-row": _mask,
}
