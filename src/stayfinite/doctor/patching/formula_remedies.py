"""Candidate edits that keep a formula in its safe range."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from stayfinite.doctor.patching.statements import (
    Remedy,
)
from stayfinite.doctor.patching.text import Text, called
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told

SMALL = "1e-8"
ROOTS = (0.5, 0.25, -0.5, -1, -2)
"""Exponents with a singularity at 0."""


def _formula(text: Text, top: Told, _: Program) -> Iterator[str]:
    """Guard the expressions of the line where bad values begin."""
    statement = text.statement_at(top.place[1]) if top.place[1] else None
    if statement is None:
        return
    line = top.place[1]
    nodes: list[Any] = [
        n for n in ast.walk(statement) if getattr(n, "lineno", line + 1) <= line <= getattr(n, "end_lineno", 0)
    ]
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from _guarded_call(text, node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            right = text.source(node.right)
            yield text.with_node(node.right, f"({right}).clamp_min({SMALL})")
            yield text.with_node(node.right, f"({right} + {SMALL})")
            yield text.with_node(node.right, f"max({right}, 1)")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and getattr(node.right, "value", 1) in ROOTS:
            yield text.with_node(node.left, f"({text.source(node.left)} + {SMALL})")


def _guarded_call(text: Text, node: ast.Call) -> Iterator[str]:
    name = called(node)
    method = isinstance(node.func, ast.Attribute) and text.source(node.func.value) not in (
        "torch",
        "F",
        "math",
        "np",
        "torch.nn.functional",
    )
    subject = (
        node.func.value if method and isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
    )
    if subject is None:
        return
    inner = text.source(subject)
    if name in ("sqrt", "rsqrt", "log", "log2", "log10", "reciprocal", "pow"):
        yield text.with_node(subject, f"({inner}).clamp_min({SMALL})")
        yield text.with_node(subject, f"({inner} + {SMALL})")
    elif name in ("exp", "expm1", "sinh", "cosh"):
        yield text.with_node(subject, f"({inner}).clamp(max=20.0)")
        yield text.with_node(subject, f"({inner} - ({inner}).detach().amax(-1, keepdim=True))")
    elif name in ("acos", "asin", "atanh"):
        yield text.with_node(subject, f"({inner}).clamp(-1 + 1e-6, 1 - 1e-6)")
    elif name in ("norm", "std", "dist", "cdist"):
        yield text.with_node(node, f"({text.source(node)} + {SMALL})")
        if name == "norm":
            rest = ", ".join(
                text.source(k) if not isinstance(k, ast.keyword) else f"{k.arg}={text.source(k.value)}"
                for k in node.keywords
            )
            yield text.with_node(node, f"(({inner}).pow(2).sum({rest}) + 1e-12).sqrt()")
        if name == "std":
            yield text.with_node(node, f"({inner}).std(unbiased=False)")
    elif name == "where" and len(node.args) == 3:
        for branch in node.args[1:]:
            for call in ast.walk(branch):
                if isinstance(call, ast.Call) and called(call) in ("log", "sqrt", "exp") and call.args:
                    argument = call.args[0]
                    yield text.with_node(argument, f"({text.source(argument)}).clamp_min({SMALL})")


def _mask(text: Text, _: Told, __: Program) -> Iterator[str]:
    infinite = [
        node for node in text.find(lambda n: isinstance(n, ast.Call) and called(n) == "float")
        if node.args and isinstance(node.args[0], ast.Constant) and "inf" in str(node.args[0].value)
    ]  # fmt: skip
    changed = text.text
    for _i in infinite:
        again = Text(changed)
        node = next(
            n for n in ast.walk(again.tree)
            if isinstance(n, ast.Call) and called(n) == "float" and n.args and "inf" in _constant(n.args[0])
        )  # fmt: skip
        changed = again.with_node(node, "-1e9")
    if infinite:
        yield changed


def _constant(node: ast.AST) -> str:
    """A constant as text; empty for anything else."""
    return str(getattr(node, "value", ""))


FORMULA_REMEDIES: dict[str, Remedy] = {
    "loss-formula-singularity": _formula,
    "naive-exp": _formula,
    "where-nan-branch": _formula,
    "norm-eps": _formula,
    "nan-loss": _formula,
    "all-labels-masked": _formula,
    "attention-fully-masked-row": _mask,
}
