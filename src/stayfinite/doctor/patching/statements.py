"""The statements of a training loop, and what a remedy is."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from stayfinite.doctor.patching.text import Text, called
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told

Remedy = Callable[[Text, Told, Program], Iterator[str]]
"""Changed texts for a finding, the likeliest first."""


def backward_statement(text: Text, program: Program) -> ast.stmt | None:
    """The statement that calls backward most often."""
    place = max(program.losses, key=lambda each: len(program.losses[each]), default=("", 0))
    return text.statement_at(place[1]) if place[1] else None


def statements_calling(text: Text, name: str, near: ast.stmt) -> list[ast.Expr]:
    """Plain statements ``x.name(...)`` in the function of another one."""
    function = text.function_round(near)
    return [
        node
        for node in text.find(lambda n: isinstance(n, ast.Expr))
        if called(node.value) == name and text.function_round(node) is function
    ]


def optimizer_name(text: Text, near: ast.stmt) -> str:
    """What the program calls its optimizer."""
    steps = [
        node for node in statements_calling(text, "step", near)
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)
    ]  # fmt: skip
    names = [text.source(node.value.func.value) for node in steps]  # type: ignore[attr-defined]
    return next((name for name in names if "opt" in name.lower()), names[0] if names else "optimizer")


def is_number(node: ast.AST) -> bool:
    """Whether a node is a plain number."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
