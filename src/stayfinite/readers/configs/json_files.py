"""JSON as people write it: comments, trailing commas, single quotes, several values, or truncated."""

from __future__ import annotations

import re

from stayfinite.readers.configs.literals import parse_literal
from stayfinite.readers.configs.tree import Node

_MOST_VALUES = 200
_BRACKET = re.compile(r"[{\[]")


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
