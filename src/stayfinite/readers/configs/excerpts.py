"""Find the code that a log or a report quotes: indented, fenced, behind prompts, or in the middle of a sentence.

Only what parses is code. Lines in a row are one excerpt, read as one program; so are statements that one line joins by
semicolons. The source lines of a traceback are out of context and are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.script_settings import parse_python, whole_tree

_LONGEST_LINE = 600
_MOST_STARTS, _MOST_ENDS = 12, 40
"""Places in a sentence where code may begin, and where each may end, that are tried."""
_MOST_JOINED = 12
"""Lines that a bracket may stay open."""

_PROMPT = lazy_regex(r"^\s*(?:>>>|\.\.\.(?=\s)|In \[\d*\]:|\d{1,4}\s?\|)\s?")
_FENCE = lazy_regex(r"^\s*(?:```\w*|~~~\w*)\s*$")
_CODE_LIKE = lazy_regex(
    r"[\w\])]\(|=|^\s*(?:for|while|if|elif|else|with|def|class|return|try|except|import|from)\b|\.\w"
)
_START = lazy_regex(
    r"(?<![\w.])(?:(?:with|for|return|def|if|while|class) )?[A-Za-z_][\w.]*(?:\[[^\]]*\])?(?:, [A-Za-z_][\w.]*){0,4}\s?"
    r"(?:\(|[-+*/]?=(?!=)|in\b)|(?<![\w.])return "
)
_END = lazy_regex(r"[`;]|\s|[,.:](?=\s|$)|$|(?<=\))")
_ELSE = lazy_regex(r"\s*(?:else|elif|except|finally)\b")
_HEADER = lazy_regex(r"\s*(?:if|elif|for|while|try|except|with)\b")
_PROSE = lazy_regex(r"[\w)\]]\.\s+\w")
_JOINED = lazy_regex(r"[\s;`]*|\s*(?:then|and then|->|→|\.\.\.|…)\s*")
"""What may stand between two statements of one excerpt."""
_FRAME = lazy_regex(r'^\s*(?:File "|-{2,}>)')
_CALLED = frozenset({"backward", "step", "zero_grad"})
"""Methods that people forget to call."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A run of quoted code."""

    tree: ast.Module
    lines: list[int]
    """The line of the text for each line of the tree."""

    def line_of(self, node: ast.AST) -> int:
        """Where a node stands in the text."""
        return self.lines[min(max(getattr(node, "lineno", 1), 1), len(self.lines)) - 1]


def excerpts(lines: Sequence[str]) -> list[Excerpt]:
    """All code in these lines, in order."""
    return [found for block in _blocks(lines) if (found := _parsed(block)) is not None]


def _blocks(lines: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Runs of code, each a list of ``(line, code)``."""
    block: list[tuple[int, str]] = []
    number = 0
    while number < len(lines):
        text, taken = _joined(lines, number)
        here, number = number + 1, number + taken
        if not text.strip() or _FENCE.match(text) or text.lstrip().startswith(("#", "//")):
            continue
        if (here > 1 and _FRAME.match(lines[here - 2])) or _FRAME.match(text):
            continue
        code = _code(text)
        if code:
            block.append((here, code))
            continue
        yield block
        block = []
        yield from ([(here, piece) for piece in pieces] for pieces in _quoted(text))
    yield block


def _joined(lines: Sequence[str], number: int) -> tuple[str, int]:
    """A line without its prompt, with those that close its brackets, and how many they are."""
    text = _PROMPT.sub("", lines[number].expandtabs(4)[:_LONGEST_LINE]).rstrip()
    whole = text
    for taken in range(1, min(_MOST_JOINED, len(lines) - number)):
        if not _CODE_LIKE.search(text) or sum(map(whole.count, "([{")) <= sum(map(whole.count, ")]}")):
            break
        whole += "\n" + _PROMPT.sub("", lines[number + taken][:_LONGEST_LINE]).rstrip()
        if sum(map(whole.count, "([{")) == sum(map(whole.count, ")]}")) and _code(whole):
            return whole, taken + 1
    return text, 1


def _code(text: str) -> str:
    """The text where it is a statement, without a remark behind an arrow; else nothing."""
    if not _CODE_LIKE.search(text):
        return text.replace("…", "...") if text.strip() in {"...", "…", "pass", "continue", "break"} else ""
    for part in dict.fromkeys((text, re.split(r"\s(?:->|=>|→|//|—|--)\s|→", text)[0].rstrip())):
        bare = part.strip()
        header = bare.split("#")[0].rstrip().endswith(":")
        shown = re.sub(
            r"^(?:el(?=if\b)|(?:else|finally)\s*(?=:)|except\b[^:]*(?=:))",
            lambda each: "" if each[0] == "el" else "if 1",
            bare,
        )
        tree = whole_tree(f"{shown}\n pass" if header else shown)
        if tree is not None and tree.body and all(map(_does_something, tree.body)):
            return part
    return ""


def _does_something(statement: ast.stmt) -> bool:
    """Whether a statement is no mere word: `loss` and `fp16: true` parse, too."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    if not isinstance(statement, ast.Expr):
        return True
    value = statement.value
    named = value.attr if isinstance(value, ast.Attribute) else ""
    return (
        named in _CALLED
        or isinstance(value, (ast.Call, ast.Yield))
        or (isinstance(value, ast.BinOp) and any(isinstance(each, ast.Call) for each in ast.walk(value)))
    )


def _quoted(text: str) -> Iterator[list[str]]:
    """Statements inside a sentence; those that nothing but semicolons separates together."""
    place, end, pieces = 0, 0, list[str]()
    for _ in range(_MOST_STARTS):
        start = _START.search(text, place)
        if start is None:
            break
        piece = _longest(text, start.start())
        if not piece:
            place = start.start() + max(1, len(re.match(r"\w*", text[start.start() :])[0]))  # type: ignore[index]
            continue
        if pieces and not _JOINED.fullmatch(text[end : start.start()]):
            yield pieces
            pieces = []
        pieces.append(piece)
        place = end = start.start() + len(piece)
    if pieces:
        yield pieces


def _longest(text: str, start: int) -> str:
    """The longest statement that begins here."""
    stop = text.find("`", start)
    ends = [each.start() for each in _END.finditer(text, start + 1, stop if stop > 0 else len(text))]
    for end in reversed([*ends, *([stop] if stop > 0 else [len(text)])][-_MOST_ENDS:]):
        piece = text[start:end].rstrip(" ,;:")
        if _CODE_LIKE.search(piece) and not _PROSE.search(piece) and _code(piece) == piece:
            return piece
    return ""


def _parsed(block: list[tuple[int, str]]) -> Excerpt | None:
    """The program of a block whose indentation may begin and end anywhere."""
    code: list[str] = []
    numbers: list[int] = []
    levels: list[int] = []
    headers: dict[int, bool] = {}
    opened = False
    for number, text in block:
        indent = len(text) - len(text.lstrip())
        if opened and (not levels or indent > levels[-1]):
            levels.append(indent)
        elif opened and numbers:
            code.append(" " * len(levels) + "pass")
            numbers.append(numbers[-1])
        while len(levels) > 1 and indent < levels[-1]:
            levels.pop()
        if not levels or (len(levels) == 1 and indent < levels[0]):
            levels = [indent]
        depth = len(levels) - 1
        bare = text.strip()
        if _ELSE.match(bare) and not headers.get(depth):
            bare = "if 1:" + bare.partition(":")[2]
        headers = {level: kind for level, kind in headers.items() if level < depth} | {depth: bool(_HEADER.match(bare))}
        first, *more = bare.split("\n")
        code += [" " * depth + first, *more]
        numbers += [number + offset for offset in range(len(more) + 1)]
        opened = bare.split("#")[0].rstrip().endswith(":")
    if opened:
        code.append(" " * len(levels) + "pass")
        numbers.append(numbers[-1])
    found = parse_python("\n".join(code)) if code else None
    return None if found is None or not found.tree.body else Excerpt(found.tree, numbers)
