"""Quote statements of a script: those that compute a loss, and commands in strings."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.readers.configs.commands import looks_like_command
from stayfinite.readers.configs.program.values import Origin
from stayfinite.readers.configs.script_losses import is_telling
from stayfinite.readers.configs.script_probabilities import GIVEN, probabilities_given
from stayfinite.readers.configs.script_settings import ScriptSettings

_LONGEST_COMMAND = 5_000


def take_notes(tree: ast.Module, text: str, found: ScriptSettings) -> None:
    """Note the lines that compute the loss and every command, whether reachable or not."""
    origin = Origin(found.source, text.split("\n"))
    for statement in _statements(tree):
        if is_telling(statement):
            found.note(statement.lineno, _line_of(statement, origin))
        for expression in _own_expressions(statement):
            for node in ast.walk(expression):
                _take_command(node, found)
    small = text.lower()
    for given in probabilities_given(tree) if "softmax" in small and "cross" in small else ():
        found.note(given.lineno, f"{GIVEN}: {origin.text_of(given)}")


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement, in source order."""
    work: list[ast.stmt] = list(reversed(tree.body))
    while work:
        statement = work.pop()
        yield statement
        children = [
            child
            for part in ("body", "handlers", "orelse", "finalbody", "cases")
            for each in getattr(statement, part, [])
            for child in (each.body if isinstance(each, (ast.ExceptHandler, ast.match_case)) else [each])
        ]
        work.extend(reversed(children))


def _take_command(node: ast.AST, found: ScriptSettings) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < _LONGEST_COMMAND:
        if "--" in node.value and looks_like_command(node.value):
            found.add_command(node.value, node.lineno)
    elif isinstance(node, (ast.List, ast.Tuple)):
        _take_listed_command(node, found)


def _take_listed_command(node: ast.List | ast.Tuple, found: ScriptSettings) -> None:
    """`parser.parse_args(["--fp16", "--lr", "1e-4"])`, `subprocess.run(["python", "train.py", "--fp16"])`."""
    words = [each.value if isinstance(each, ast.Constant) else None for each in node.elts]
    if not any(isinstance(word, str) and word.startswith("--") and len(word) > 3 for word in words):
        return
    quoted = [_shell_word(str(word)) for word in words if word is not None]
    found.add_command(" ".join(quoted), node.lineno, noted=False)


def _line_of(statement: ast.stmt, origin: Origin) -> str:
    if isinstance(statement, ast.With):
        return "with " + ", ".join(origin.text_of(item.context_expr) for item in statement.items)
    if isinstance(statement, ast.For):
        return f"for {origin.text_of(statement.target)} in {origin.text_of(statement.iter)}:"
    if isinstance(statement, ast.While):
        return f"while {origin.text_of(statement.test)}:"
    return origin.text_of(statement)


def _own_expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement, without those of nested statements."""
    found: list[ast.expr] = []
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            found.append(child)
        elif isinstance(child, ast.withitem):
            found.append(child.context_expr)
        elif isinstance(child, ast.keyword):
            found.append(child.value)
    return found


def _shell_word(word: str) -> str:
    return "'" + word.replace("'", "") + "'" if not word or any(character in " \"'$\\" for character in word) else word
