"""Parse a script, leaving out what does not parse; collect its settings without duplicates, and its notes."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import CodeFault, Setting, Settings
from stayfinite.readers.configs.commands import settings_of_command
from stayfinite.readers.configs.tree import MOST_SETTINGS, Node, node_of, settings_of

NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
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
        except NOT_PYTHON:
            return None
    return None


_OTHER_VERSIONS = lazy_regex(
    r"^Missing parentheses in call to|^multiple exception types must be parenthesized|^f-string|leading zeros in"
)
"""What Python 2 or a later Python than this one may accept."""
_OF_OTHER_VERSIONS = lazy_regex(
    r"^\s*(?:print\b\s*[^\s(=.,]|exec\s+[\w'\"]|raise\s+\w[\w.]*\s*,|type\s+\w+.*=|(?:async\s+)?def\s+\w+\s*\[|"
    r"class\s+\w+\s*\[)|<>|`|\b(?:0\d+|\d+L)\b|\b(?:[tT][rR]?|[uU][rR])[\"']"
)


def syntax_error(text: str) -> tuple[int, str] | None:
    """``(line, problem)`` if no version of Python reads the text."""
    try:
        _parse(text)
    except SyntaxError as error:
        number = error.lineno or 1
        line = next(iter(text.split("\n")[number - 1 : number]), "")
        if _OTHER_VERSIONS.search(str(error.msg)) or _OF_OTHER_VERSIONS.search(line) or isinstance(error, TabError):
            return None
        return number, str(error.msg)
    except NOT_PYTHON:
        return None
    return None


def is_python(text: str) -> bool:
    """Whether an unnamed text is a script: it parses, and does more than name things.

    `fp16: true` also parses, as an annotation; so does a single word.
    """
    if len(text) > _MOST_GUESSED or not ("=" in text or "(" in text):
        return False
    tree = whole_tree(text)
    body = [] if tree is None else tree.body
    if any(isinstance(each, ast.AnnAssign) and each.value is None for each in body):
        return False
    idle = sum(isinstance(each, ast.Expr) and not isinstance(each.value, ast.Call) for each in body)
    return len(body) > 1 and idle * 2 < len(body)


def whole_tree(text: str) -> ast.Module | None:
    """The tree of a script; None if any of it is not Python."""
    try:
        return _parse(text)
    except NOT_PYTHON:
        return None


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        return ast.parse(text)


_MOST_NOTES = 2_000


class ScriptSettings:
    """Settings and notes of a script being read."""

    def __init__(self, source: str, kind: str) -> None:
        self.source = source
        self.kind = kind
        self.settings: list[tuple[int, Setting]] = []
        """Each with the script line where it is used."""
        self.note_lines: list[tuple[int, str]] = []
        self.faults: list[CodeFault] = []
        """Of the loops, ``where`` without the line's file if it is the script's own: `12`, `engine.py:12`."""
        self._seen: set[tuple[str, str, str, int, str]] = set()

    @property
    def full(self) -> bool:
        """Whether the limit of settings is reached."""
        return len(self.settings) >= MOST_SETTINGS

    def add(self, name: str, value: object, line: int) -> None:
        """Add a setting that is written where it is used."""
        self.add_node(name, node_of(value, line))

    def add_node(
        self,
        name: str,
        node: Node,
        *,
        kind: str = "",
        at: int = 0,
        once: bool = False,
        bound_to: str = "",
        doubtful: bool = False,
    ) -> None:
        """Add a value or all leaves of a dict, unless known from this line (with ``once``: from any line)."""
        if kind:
            node = Node(node.value, node.line, node.label, node.source)
        for each in settings_of(node, self.source, prefix=name, kind=kind or self.kind):
            mark = (each.name, repr(each.value), each.source, 0 if once else each.line, "" if once else bound_to)
            if mark not in self._seen and not self.full:
                self._seen.add(mark)
                kept = Setting(each.name, each.value, each.source, each.line, each.kind, bound_to, doubtful)
                self.settings.append((at or each.line, kept))

    def add_command(self, text: str, line: int, *, noted: bool = True) -> None:
        """Add the settings of a command in the script."""
        self.settings.extend((line, each) for each in settings_of_command(text, self.source, line))
        if noted:
            self.note(line, " ".join(text.split())[:2000])

    def note(self, line: int, text: str) -> None:
        if len(self.note_lines) < _MOST_NOTES:
            self.note_lines.append((line, text))

    def result(self, file_lines: list[int] | None = None, more: Iterable[Setting] = ()) -> Settings:
        """The settings in line order, with ``file_lines`` mapping text lines to file lines.

        ``more`` holds settings read elsewhere, with file lines.
        """

        def mapped(line: int) -> int:
            return file_lines[line - 1] if file_lines and 0 < line <= len(file_lines) else line

        own = [
            (mapped(at), replace(each, line=mapped(each.line)) if each.source == self.source else each)
            for at, each in self.settings
        ]
        ordered = sorted([*own, *((each.line, each) for each in more)], key=lambda each: each[0])
        return Settings(
            [each for _, each in ordered[:MOST_SETTINGS]],
            [(f"{self.source}:{mapped(line)}", text) for line, text in self.note_lines],
            [
                replace(each, where=f"{self.source}:{mapped(int(each.where))}") if each.where.isdigit() else each
                for each in self.faults
            ],
        )
