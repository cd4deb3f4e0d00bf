"""Program text with its syntax tree, for edits; and what a remedy is given: text, top finding, training loop."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told

Node = TypeVar("Node", bound=ast.AST)


class Text:
    """Program text. Edits return new text and leave this object unchanged."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.tree = ast.parse(text)
        self._parents: dict[ast.AST, ast.AST] = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }

    def source(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ""

    def before(self, node: Any) -> str:
        """The text before an expression, without trailing blanks."""
        return self.text.encode()[: self._at(node.lineno, node.col_offset)].decode().rstrip()

    def after(self, node: Any) -> str:
        """The text after an expression, without leading blanks."""
        return self.text.encode()[self._at(node.end_lineno, node.end_col_offset) :].decode().lstrip()

    def with_node(self, node: Any, new: str) -> str:
        """The text with an expression replaced."""
        begin, end = self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)
        raw = self.text.encode()
        return (raw[:begin] + new.encode() + raw[end:]).decode()

    def _at(self, line: int, column: int) -> int:
        return sum(len(each.encode()) for each in self.lines[: line - 1]) + column

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Enclosing nodes, innermost first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def statement_at(self, line: int) -> ast.stmt | None:
        """The innermost statement that contains a line."""
        found = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        return max(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)

    def loop_round(self, node: ast.AST) -> ast.For | ast.While | None:
        """The enclosing loop in the same function, or None."""
        for parent in self.parents(node):
            if isinstance(parent, ast.For | ast.While):
                return parent
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                return None
        return None

    def function_round(self, node: ast.AST) -> ast.FunctionDef | None:
        """The enclosing function, or None."""
        return next((parent for parent in self.parents(node) if isinstance(parent, ast.FunctionDef)), None)

    def indent(self, statement: ast.stmt) -> str:
        line = self.lines[statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def changed(self, remove: list[ast.stmt], insert: list[tuple[int, str]]) -> str:
        """The text without some statements, and with lines inserted before line numbers."""
        gone = {n for each in remove for n in range(each.lineno, (each.end_lineno or each.lineno) + 1)}
        before: dict[int, list[str]] = {}
        for line, new in insert:
            before.setdefault(line, []).append(new if new.endswith("\n") else f"{new}\n")
        made: list[str] = []
        for number, kept in enumerate(self.lines, start=1):
            made += before.get(number, [])
            if number not in gone:
                made.append(kept)
        made += before.get(len(self.lines) + 1, [])
        return "".join(made)

    def with_line_before(self, statement: ast.stmt, line: str, *without: ast.stmt) -> str:
        """The text with a line before a statement, and without some others."""
        return self.changed([*without], [(statement.lineno, f"{self.indent(statement)}{line}")])

    def with_line_after(
        self, statement: ast.stmt, line: str, *without: ast.stmt, indented_as: ast.stmt | None = None
    ) -> str:
        """The text with a line after a statement, and without some others."""
        end = statement.end_lineno or statement.lineno
        return self.changed([*without], [(end + 1, f"{self.indent(indented_as or statement)}{line}")])

    def calls(self, *names: str) -> list[ast.Call]:
        """Calls of functions or methods with these names."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and called(node) in names]

    def nodes(self, kind: type[Node]) -> list[Node]:
        """All nodes of a kind."""
        return [node for node in ast.walk(self.tree) if isinstance(node, kind)]


def owner_of(call: ast.AST) -> ast.expr | None:
    """``x`` of ``x.name(...)``; None for other calls."""
    return call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def called(call: ast.AST) -> str:
    """Name of the called function or method; empty if not a call."""
    if not isinstance(call, ast.Call):
        return ""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


@dataclass(frozen=True)
class Case:
    """A finding in a text."""

    text: Text
    top: Told
    program: Program

    @cached_property
    def statement(self) -> ast.stmt | None:
        """The statement that the finding names."""
        return self.text.statement_at(self.top.place[1])

    @cached_property
    def backward(self) -> ast.stmt | None:
        """The statement with the most backward calls."""
        losses = self.program.losses
        return self.text.statement_at(max(losses, key=lambda each: len(losses[each]), default=("", 0))[1])

    def calling(self, name: str) -> list[ast.Expr]:
        """Statements ``x.name(...)`` in the same function as backward."""
        function = None if self.backward is None else self.text.function_round(self.backward)
        return [
            node
            for node in self.text.nodes(ast.Expr)
            if called(node.value) == name and self.text.function_round(node) is function
        ]

    @cached_property
    def optimizer(self) -> str:
        """The program's name for its optimizer."""
        owners = [owner_of(node.value) for node in self.calling("step")]
        names = [self.text.source(owner) for owner in owners if owner is not None]
        return next((name for name in names if "opt" in name.lower()), names[0] if names else "optimizer")

    @property
    def optimizer_steps(self) -> list[ast.Expr]:
        """Statements that step the optimizer."""
        return [each for each in self.calling("step") if self.text.source(each).startswith(self.optimizer)]


Remedy = Callable[[Case], Iterator[str]]
"""Yields candidate texts for a finding, likeliest first."""


def number_in(node: ast.AST) -> float | None:
    """The value of a number literal, else None."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return None
    return float(node.value) if isinstance(node.value, int | float) else None
