"""Find the statements of a user frame that lead to a line: those of the enclosing loop or function."""

from __future__ import annotations

import ast
import copy
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from stayfinite.doctor.frames import short

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive statements."""

    statements: list[ast.stmt]
    loop: ast.For | ast.While | None
    """The loop they are the body of; None for a function or file."""
    filename: str

    def holding(self, line: int) -> int | None:
        """Index of the last statement that contains a line."""
        for index, statement in reversed(list(enumerate(self.statements))):
            if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
                return index
        return None


@lru_cache(maxsize=64)
def tree_of(filename: str) -> ast.Module | None:
    """Syntax tree of a file; None without source."""
    lines = linecache.getlines(filename)
    if not lines:
        return None
    try:
        return ast.parse("".join(lines), filename)
    except (SyntaxError, ValueError):
        return None


def source_line(filename: str, line: int) -> str:
    """One line of a file, stripped."""
    return linecache.getline(filename, line).strip()


def quoted(place: tuple[str, int]) -> str:
    """A place with its line: `train.py:41: loss.backward()`."""
    return f"{short(place)}: {source_line(*place)}"


def blocks_round(code: CodeType, line: int) -> list[Block]:
    """Enclosing loop bodies of a line, innermost first, then the function's own statements."""
    tree = tree_of(code.co_filename)
    scope = None if tree is None else _scope_of(tree, code)
    if scope is None:
        return []
    found = [Block(loop.body, loop, code.co_filename) for loop in _loops(scope.body, line)][::-1]
    if not isinstance(scope, ast.Module):
        found.append(Block(list(scope.body), None, code.co_filename))
    return found


def _scope_of(tree: ast.Module, code: CodeType) -> ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | None:
    if code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if code.co_firstlineno in (first, node.lineno):
                return node
    return None


def _loops(statements: Sequence[ast.stmt], line: int) -> Iterator[ast.For | ast.While]:
    """Enclosing loops of a line, outermost first, without entering other scopes."""
    for statement in statements:
        if not statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            continue
        if isinstance(statement, SCOPES):
            return
        if isinstance(statement, ast.For | ast.While) and any(
            each.lineno <= line <= (each.end_lineno or each.lineno) for each in statement.body
        ):
            yield statement
        for _, value in ast.iter_fields(statement):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt | ast.ExceptHandler):
                inner: list[ast.stmt] = []
                for each in value:
                    inner += each.body if isinstance(each, ast.ExceptHandler) else [each]
                yield from _loops(inner, line)
        return


def names_loaded(statements: Sequence[ast.stmt]) -> set[str]:
    """Names read in these statements."""
    return _names_in(statements, ast.Load)


def names_stored(nodes: Sequence[ast.AST]) -> set[str]:
    """Names assigned in these nodes."""
    return _names_in(nodes, ast.Store)


def _names_in(nodes: Sequence[ast.AST], use: type[ast.expr_context]) -> set[str]:
    found = (child for node in nodes for child in ast.walk(node))
    return {child.id for child in found if isinstance(child, ast.Name) and isinstance(child.ctx, use)}


def loops_in(statement: ast.stmt) -> list[ast.For]:
    """All ``for`` loops in a statement, including itself."""
    return [node for node in ast.walk(statement) if isinstance(node, ast.For)]


class _Loose(ast.NodeTransformer):
    """Makes statements of a function runnable outside it."""

    def __init__(self, first_argument: str) -> None:
        self._first = first_argument
        self._depth = 0

    def _within(self, node: ast.AST) -> ast.AST:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _within  # noqa: N815 (the names that ast calls)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self._depth:
            return node
        thrown = ast.Raise(exc=ast.Name(id="__stayfinite_returned__", ctx=ast.Load()), cause=None)
        return ast.copy_location(thrown, node)

    def _declared(self, node: ast.AST) -> ast.AST:
        return node if self._depth else ast.copy_location(ast.Pass(), node)

    visit_Nonlocal = visit_Global = _declared  # noqa: N815

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self._first:
            node.args = [ast.Name(id="__class__", ctx=ast.Load()), ast.Name(id=self._first, ctx=ast.Load())]
        return node


def compiled(statement: ast.stmt, filename: str, first_argument: str) -> CodeType:
    """Compile one statement at its own line; ``break`` and ``continue`` end it."""
    loose = _Loose(first_argument).visit(copy.deepcopy(statement))
    once = ast.While(test=ast.Constant(value=True), body=[loose, ast.Break()], orelse=[])
    ast.copy_location(once, statement)
    ast.copy_location(once.body[1], statement)
    module = ast.Module(body=[once], type_ignores=[])
    ast.fix_missing_locations(module)
    return compile(module, filename, "exec")
