"""Parse Python source, leaving out what does not parse."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field

MOST_ATTEMPTS = 12  # each bad line costs a parse of the whole text

_MOST_GUESSED = 200_000


@dataclass(slots=True)
class Parsed:
    """A tree, and the lines left out of it."""

    tree: ast.Module
    lost: list[tuple[int, str]] = field(default_factory=list)
    """``(line, text)`` of each part left out."""


def parse_python(text: str) -> Parsed | None:
    """The tree of a script; None if none of it is Python.

    A line that is not Python (a shell magic, a Python 2 print) is replaced by `pass`; an unclosed bracket ends the
    tree, as in a truncated file.
    """
    lines = text.replace("\0", " ").split("\n")
    lost: list[tuple[int, str]] = []
    for _ in range(MOST_ATTEMPTS):
        try:
            return Parsed(_parse("\n".join(lines)), lost)
        except SyntaxError as error:
            number = min(max(error.lineno or 1, 1), len(lines))
            if "never closed" in str(error.msg) or "EOF" in str(error.msg) or "unterminated triple" in str(error.msg):
                lost.append((number, "\n".join(lines[number - 1 :])))
                lines = lines[: number - 1]
                if not any(line.strip() for line in lines):
                    return Parsed(ast.Module([], []), lost)
                continue
            bad = lines[number - 1]
            if bad.strip() in {"", "pass"}:
                return None
            lost.append((number, bad))
            indent = re.match(r"\s*", bad)
            lines[number - 1] = (indent.group() if indent else "") + "pass"
        except (ValueError, RecursionError, MemoryError, OverflowError):
            return None
    return None


def open_bracket(text: str) -> tuple[int, str] | None:
    """``(line, problem)`` if the first error is an unclosed bracket, on any Python version."""
    try:
        _parse(text)
    except SyntaxError as error:
        return (error.lineno or 1, str(error.msg)) if "never closed" in str(error.msg) else None
    except (ValueError, RecursionError, MemoryError, OverflowError):
        return None
    return None


def is_python(text: str) -> bool:
    """Whether an unnamed text is a script: it parses, and does more than name things.

    `fp16: true` also parses, as an annotation; so does a single word.
    """
    if len(text) > _MOST_GUESSED or not ("=" in text or "(" in text):
        return False
    try:
        body = _parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    if any(isinstance(each, ast.AnnAssign) and each.value is None for each in body):
        return False
    idle = sum(isinstance(each, ast.Expr) and not isinstance(each.value, ast.Call) for each in body)
    return len(body) > 1 and idle * 2 < len(body)


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        return ast.parse(text)
