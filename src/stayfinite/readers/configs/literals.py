"""Values as people and dumps write them: bracketed (JSON, Python), complete or truncated, or with quotes and remarks.

One parser for JSON, JSON with comments and trailing commas, `{'fp16': True}`, `Namespace(lr=[0.1], arch='big')` and
`<SchedulerType.LINEAR: 'linear'>`. It uses its own stack, so depth costs only memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.scalars import NotPlain, number, scalar, strict_scalar
from stayfinite.readers.configs.tree import Node, plain_data

MOST_TOKENS = 400_000
_MOST_NESTING = 200
_MOST_WORDS = 4_000  # characters of an unquoted text, which is assembled word by word
_OPENERS = {"{": "}", "[": "]", "(": ")"}

_TOKEN = lazy_regex(
    r"""(?P<space>\s+)
      | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z)|\#[^\n]*)
      | (?P<string>[bBrRuU]?"(?:[^"\\]|\\.)*"|[bBrRuU]?'(?:[^'\\]|\\.)*')
      | (?P<enum><[\w.]{1,100}:\s*(?:'[^'\n]*'|"[^"\n]*"|[^<>\n]{0,100})>)
      | (?P<point>[{}\[\]():,=])
      | (?P<word>[^\s{}\[\]():,='"\#]+)
      | (?P<junk>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = lazy_regex(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parsed value, where it ended, and whether all brackets were closed."""

    node: Node
    end: int
    whole: bool


@dataclass(slots=True)
class _Open:
    """An unclosed bracket."""

    node: Node
    closer: str
    key: str | None = None
    """Of the current entry."""
    value: Node | None = None
    """Of the current entry."""
    positional: int = 0


def parse_literal(text: str, start: int = 0, *, first_line: int = 1) -> Parsed | None:
    """Parse the bracket (or `Name(`) at ``start``; None if there is none. If unclosed, keep its complete entries."""
    stack: list[_Open] = []
    line = first_line
    position = start
    word_before = ""
    for _ in range(MOST_TOKENS):
        match = _TOKEN.match(text, position)
        if match is None:
            break
        kind, token = match.lastgroup, match.group()
        position = match.end()
        token_line, line = line, line + token.count("\n")
        if kind in {"space", "comment"}:
            continue
        if kind == "junk":  # an unclosed quote
            break
        if not stack:
            if token in _OPENERS:
                stack.append(_opened(token, token_line, word_before))
                word_before = ""
                continue
            if kind == "word" and not word_before:
                word_before = token
                continue
            return None
        top = stack[-1]
        if token in _OPENERS:
            if len(stack) >= _MOST_NESTING:
                break
            stack.append(_opened(token, token_line, _label_of(top, token)))
        elif token in "}])" and kind == "point":
            if token != top.closer:
                continue
            _finish_entry(top)
            _close(top)
            stack.pop()
            if not stack:
                return Parsed(top.node, position, whole=True)
            stack[-1].value = top.node
        elif token == ",":
            _finish_entry(top)
        elif kind == "point":
            _take_key(top)
        elif match.end() < len(text) or kind == "string":  # the last word may be truncated
            _take_value(top, _value(kind, token), token_line)
    if not stack:
        return None
    while True:
        inner = stack.pop()
        if inner.key is not None or isinstance(inner.node.value, list):
            _finish_entry(inner)
        if not stack:
            return Parsed(inner.node, position, whole=False)
        stack[-1].value = inner.node


def _opened(token: str, line: int, label: str) -> _Open:
    empty: Any = [] if token == "[" or (token == "(" and not label) else {}
    return _Open(Node(empty, line, label), _OPENERS[token])


def _label_of(top: _Open, token: str) -> str:
    """`LoraConfig` of `peft=LoraConfig(r=8)`: the word before a parenthesis names a call."""
    if token == "(" and top.value is not None and isinstance(top.value.value, str):
        label = top.value.value
        top.value = None
        return label
    return ""


def _take_key(top: _Open) -> None:
    if top.value is None or isinstance(top.value.value, (dict, list)):
        return
    if top.key is not None:
        # A missing comma: in `name: llama warmup: 100` the last word is the next key.
        value, space, key = str(top.value.value).rpartition(" ")
        if not space:
            return
        top.value = Node(scalar(value), top.value.line)
        _finish_entry(top)
        top.key = key
        return
    top.key = str(top.value.value)
    top.value = None


def _take_value(top: _Open, value: Any, line: int) -> None:
    before = top.value
    if before is not None and isinstance(before.value, str) and isinstance(value, str):
        # Unquoted words, and adjacent strings, which Python concatenates.
        if len(before.value) < _MOST_WORDS:
            top.value = Node(f"{before.value} {value}", before.line)
        return
    if before is not None and top.key is not None:  # a missing comma
        _finish_entry(top)
    top.value = Node(value, line)


def _finish_entry(top: _Open) -> None:
    key, value = top.key, top.value
    top.key = top.value = None
    if value is None:
        return
    container = top.node.value
    if isinstance(container, list):
        if key is None:
            container.append(value)
        else:
            container.append(Node({key: value}, value.line))
    elif key is not None:
        container[key] = value
    else:
        container[str(top.positional)] = value
        top.positional += 1


def _close(top: _Open) -> None:
    """Treat a set such as `{'q_proj', 'v_proj'}` as a list."""
    container = top.node.value
    if isinstance(container, dict) and not top.node.label and 0 < top.positional == len(container):
        top.node.value = list(container.values())


def _value(kind: str | None, token: str) -> Any:
    if kind == "string":
        quote = token[-1]
        return _ESCAPE.sub(_unescaped, token[token.index(quote) + 1 : -1])
    if kind == "enum":
        inner = token[1:-1].partition(":")[2].strip()
        return inner[1:-1] if inner[:1] in {"'", '"'} and len(inner) > 1 else scalar(inner)
    return scalar(token)


def _unescaped(match: re.Match[str]) -> str:
    escape = match.group(1)
    if escape[0] in "ux" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPES.get(escape, escape)


_MOST_VALUES = 200
_BRACKET = lazy_regex(r"[{\[]")


def parse_json(text: str) -> tuple[list[Node], bool]:
    """The bracketed values of the text, and whether all were complete."""
    nodes: list[Node] = []
    position, line = 0, 1
    while len(nodes) < _MOST_VALUES:
        match = _BRACKET.search(text, position)
        if match is None:
            break
        line += text.count("\n", position, match.start())
        parsed = parse_literal(text, match.start(), first_line=line)
        if parsed is None:
            break
        nodes.append(parsed.node)
        if not parsed.whole:
            return nodes, False
        line += text.count("\n", match.start(), parsed.end)
        position = parsed.end
    return nodes, bool(nodes)


_REMARK = lazy_regex(r"[(\[][^()\[\]]*[)\]]$|(?<=\s)#.*$|(?<=\s)//.*$")
_MOST_TEXT = 4_000  # longer texts are not hand-written values


def value_in_text(text: str) -> Any:
    """Parse a hand-written value, with quotes, brackets and a trailing remark.

    >>> value_in_text("True (default)"), value_in_text("[0.9, 0.95]"), value_in_text("'5'"), value_in_text("4x V100")
    (True, [0.9, 0.95], '5', '4x V100')
    """
    text = text.strip()
    if len(text) > _MOST_TEXT:
        return text
    whole = _whole(text)
    if whole is not NotPlain:
        return whole
    without = _REMARK.sub("", text).rstrip(" ,;")
    if without != text:
        whole = _whole(without)
        if whole is not NotPlain:
            return whole
    for head in (text.partition(" (")[0] if text.endswith(")") else text, re.split(r"[,;(]\s", text, maxsplit=1)[0]):
        if head != text:
            try:
                return strict_scalar(head.strip())
            except NotPlain:
                pass
    return text


def _whole(text: str) -> Any:
    if not text:
        return ""
    try:
        return strict_scalar(text)
    except NotPlain:
        pass
    first, last = text[0], text[-1]
    if first in "'\"" and last == first and len(text) > 1 and first not in text[1:-1]:
        return text[1:-1]
    if (first, last) in {("[", "]"), ("{", "}"), ("(", ")")} and " for " not in text:
        parsed = parse_literal(text)
        if parsed is not None and parsed.whole and not text[parsed.end :].strip():
            return plain_data(parsed.node)
    if "," in text and len(text) < 200:
        parts = [number(part.strip()) for part in text.split(",")]
        if len(parts) > 1 and all(part is not None for part in parts):
            return parts
    return NotPlain
