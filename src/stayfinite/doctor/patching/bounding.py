"""Edits that keep the value of one expression in range, with no more parentheses than needed."""

from __future__ import annotations

import ast

from stayfinite.doctor.patching.text import Text

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
