"""TOML and INI. Both parsers drop line numbers, so each key's line is looked up in the text."""

from __future__ import annotations

from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.tree import Node, node_of
from stayfinite.readers.configs.values import value_in_text

_SECTION = lazy_regex(r"\[{1,2}([^\[\]]+)\]{1,2}")
_PAIR = lazy_regex(r"""([\w."'-][\w."' -]{0,200})[=:](.*)""")
_KEY = lazy_regex(r"\s*+(?:\[{1,2}[^\]=#]*\]|[^=#]*=)")
_MOST_WIDTH = 4_000
_MOST_LINES = 20_000
MOST_NESTING = 64  # parts of one key, `a.b.c`: the parser's time grows with their square
MOST_STEPS = 200_000  # parts of all keys together


class BrokenToml(Exception):
    """Not TOML."""


def parse_toml(text: str) -> Node:
    """The whole document."""
    import tomllib

    _refuse_depth(text)
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise BrokenToml(str(error)) from None
    return _with_lines(data, _lines_of(text))


def _refuse_depth(text: str) -> None:
    """Refuse keys that would take the parser minutes."""
    steps = 0
    for number, line in enumerate(text.split("\n"), 1):
        key = _KEY.match(line)
        deep = sum(1 for step in key.group().split(".") if step.strip()) if key else 0
        steps += deep
        if deep > MOST_NESTING:
            raise BrokenToml(f"a key of more than {MOST_NESTING} steps, line {number}")
        if steps > MOST_STEPS:
            raise BrokenToml(f"more than {MOST_STEPS:,} steps in its keys, line {number}")


def parse_ini(text: str) -> Node:
    """Sections of `key = value`; other lines are skipped."""
    root = Node({}, 1)
    section = root
    for number, line in enumerate(text.split("\n")[:_MOST_LINES], 1):
        line = line.strip()[:_MOST_WIDTH]
        if not line or line[0] in "#;":
            continue
        heading = _SECTION.match(line)
        if heading:
            name = heading.group(1).strip()
            section = root.value.setdefault(name, Node({}, number))
            if not isinstance(section.value, dict):
                section = root.value[name] = Node({}, number)
            continue
        pair = _PAIR.match(line)
        if pair:
            section.value[pair.group(1).strip()] = node_of(value_in_text(pair.group(2)), number)
    return root


def _lines_of(text: str) -> dict[tuple[str, ...], int]:
    """The line of each key, by its full path."""
    lines: dict[tuple[str, ...], int] = {}
    path: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()[:_MOST_WIDTH]
        heading = _SECTION.match(line)
        if heading:
            path = _path_of(heading.group(1))
            continue
        pair = _PAIR.match(line)
        if pair:
            lines.setdefault((*path, *_path_of(pair.group(1))), number)
    return lines


def _path_of(name: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in name.split("."))


def _with_lines(data: Any, lines: dict[tuple[str, ...], int]) -> Node:
    root = Node({}, 1)
    work: list[tuple[Any, Node, tuple[str, ...]]] = [(data, root, ())]
    while work:
        item, node, path = work.pop()
        if isinstance(item, dict):
            node.value = {str(key): Node(None, lines.get((*path, str(key)), node.line)) for key in item}
            work.extend((each, node.value[str(key)], (*path, str(key))) for key, each in item.items())
        elif isinstance(item, list):
            node.value = [Node(None, node.line) for _ in item]
            work.extend((each, child, path) for each, child in zip(item, node.value, strict=True))
        else:
            node.value = item if isinstance(item, (str, int, float, bool)) else str(item)
    return root
