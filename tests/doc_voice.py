"""Collects what people read: messages, fixes, labels, titles and help of the package, and the prose of the docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from doc_blocks import ROOT

PACKAGE = ROOT / "src" / "stayfinite"
HOLE = "§"
"""A value that is filled into a template."""

SAYING = {"print", "say", "warn", "trouble", "complain", "heading", "write"}
"""Calls whose texts reach a person as they are."""

TITLED = {"title", "fix", "why", "do", "what", "about", "hint", "advice", "help", "text"}
"""Keywords whose texts reach a person as they are."""


@dataclass(frozen=True)
class Said:
    """A text with its place, and what it is: message, fix, label, title, help or prose."""

    kind: str
    text: str
    place: str

    @property
    def words(self) -> int:
        """How many words it has; a value that is filled in and a piece of code count as one."""
        bare = re.sub(r"`[^`]*`|\\n", HOLE, self.text)
        return len(re.findall(rf"[\w'-]*{HOLE}\S*|[\w'./()=,-]*\w[\w'./()=-]*", bare))

    @cached_property
    def bare(self) -> str:
        """The text without code and addresses, which keep the words of others."""
        return re.sub(r"`[^`]*`|\]\([^)]*\)|\"[^\"]*\"", " ", self.text)

    def __str__(self) -> str:
        return f"{self.place}: {self.text[:160]!r}"


def text_of(node: ast.AST) -> str | None:
    """The text of a literal, of a template with its holes, or of one of two choices."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "" if isinstance(part, ast.Constant) else HOLE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else f"{left or HOLE}{right or HOLE}"
    return None


def texts_in(node: ast.AST) -> Iterator[str]:
    """The texts that a value may be: of a choice both."""
    if isinstance(node, ast.IfExp):
        yield from texts_in(node.body)
        yield from texts_in(node.orelse)
    elif (text := text_of(node)) is not None:
        yield text


def other_texts_of_the_package() -> list[Said]:
    """Every other text of three words or more that is no docstring and no pattern: most of it is part of a message."""
    found = []
    for path in sorted(set(PACKAGE.rglob("*.py")) - set(PACKAGE.rglob("built_in.py"))):  # which are texts to train on
        nodes = _nodes_of(path)
        silent = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in silent:
                continue
            text = text_of(node)
            if text and len(text.split()) >= 3 and not re.search(r"\\[bdsw.(]|\(\?|\w\|\w|\n.*\n", text):
                found.append(Said("text", text, f"{path.relative_to(PACKAGE)}:{node.lineno}"))
    return found


def said_by_the_package() -> list[Said]:
    """Every message, fix, label and title, and the help of every flag."""
    return [said for path in sorted(PACKAGE.rglob("*.py")) for said in _said_in(path)]


def prose_of_the_docs() -> list[Said]:
    """The paragraphs of README and docs, without code."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [said for page in pages for said in _paragraphs(page)]


@cache
def _nodes_of(path: Path) -> list[ast.AST]:
    """Those in which a text can be; the package is read once."""
    wanted = (ast.Constant, ast.JoinedStr, ast.Expr, ast.Call, ast.ClassDef)
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in nodes:  # as `ast.walk` goes, in half the time; names and operators hold no text
        for name in node._fields:
            value = getattr(node, name)
            if isinstance(value, list):
                nodes += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields and not isinstance(value, ast.Name):
                nodes.append(value)
    return [node for node in nodes if isinstance(node, wanted)]


def _said_in(path: Path) -> Iterator[Said]:
    where = path.relative_to(PACKAGE)
    if where.parts[0] == "rules" and "\nRULE = Rule(" in (text := path.read_text(encoding="utf-8")):
        yield Said("title", text.removeprefix('"""').partition("\n")[0], f"{where}:1")  # the first line of its page
    for node in _nodes_of(path):
        if isinstance(node, ast.Call):
            yield from _said_by_a_call(node, str(where))
        elif isinstance(node, ast.ClassDef) and where.parts[0] in ("cli", "recipes"):
            yield from _help_of(node, str(where))


def _said_by_a_call(call: ast.Call, where: str) -> Iterator[Said]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    place = f"{where}:{call.lineno}"
    if name == "check" and len(call.args) > 1:
        yield from (Said("label", text, place) for text in texts_in(call.args[1]))
        yield from (Said("message", text, place) for each in call.keywords for text in texts_in(each.value))
        return
    is_error = name.endswith(("Error", "Stopped", "Failed", "Ready", "Fault", "Diverged", "Closed"))
    if (is_error or name in SAYING or name in ("Clue", "Hint")) and call.args:
        yield from (Said("message", text, place) for text in texts_in(call.args[0]) if " " in text.strip())
    for each in call.keywords:
        kind = {"fix": "fix", "advice": "fix", "title": "title"}.get(each.arg or "", "message")
        if each.arg in TITLED and not (name == "field" or name.endswith("_parser")):
            yield from (Said(kind, text, place) for text in texts_in(each.value) if " " in text.strip())


def _help_of(settings: ast.ClassDef, where: str) -> Iterator[Said]:
    """The lines under the fields of a dataclass of flags."""
    if not any("dataclass" in ast.unparse(each) for each in settings.decorator_list):
        return
    for field, below in zip(settings.body, settings.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and (text := text_of(below.value)):
            yield Said("help", " ".join(text.split()), f"{where}:{below.lineno}")


def _paragraphs(page: Path) -> Iterator[Said]:
    number, fenced, lines, begun = 0, False, list[str](), 1
    for number, line in enumerate([*page.read_text(encoding="utf-8").splitlines(), ""], 1):
        if line.startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            continue
        if not line.strip() or line.startswith(("|", "#", "<", "- ", "1.", "2.", "3.", "4.", "!", ">")):
            if lines:
                yield Said("prose", " ".join(lines), f"{page.relative_to(ROOT)}:{begun}")
            lines = [] if not line.strip() or line.startswith(("<", "!")) else [line]
            begun = number
        else:
            begun = begun if lines else number
            lines.append(line)
