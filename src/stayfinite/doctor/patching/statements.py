"""Find statements of a training loop; the type of a remedy."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from stayfinite.doctor.patching.text import Text, called
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told

Remedy = Callable[[Text, Told, Program], Iterator[str]]
"""Yields candidate texts for a finding, likeliest first."""


def backward_statement(text: Text, program: Program) -> ast.stmt | None:
    """The statement with the most backward calls."""
    place = max(program.losses, key=lambda each: len(program.losses[each]), default=("", 0))
    return text.statement_at(place[1]) if place[1] else None


def statements_calling(text: Text, name: str, near: ast.stmt) -> list[ast.Expr]:
    """Statements ``x.name(...)`` in the same function as ``near``."""
    function = text.function_round(near)
    return [
        node
        for node in text.find(lambda n: isinstance(n, ast.Expr))
        if called(node.value) == name and text.function_round(node) is function
    ]


def optimizer_name(text: Text, near: ast.stmt) -> str:
    """The program's name for its optimizer."""
    owners = [owner_of(node.value) for node in statements_calling(text, "step", near)]
    names = [text.source(owner) for owner in owners if owner is not None]
    return next((name for name in names if "opt" in name.lower()), names[0] if names else "optimizer")


def owner_of(call: ast.AST) -> ast.expr | None:
    """``x`` of ``x.name(...)``; None for other calls."""
    return call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def number_in(node: ast.AST) -> float | None:
    """The value of a number literal, else None."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return None
    return float(node.value) if isinstance(node.value, int | float) else None
