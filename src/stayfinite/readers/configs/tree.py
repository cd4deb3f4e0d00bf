"""The tree that every structured file becomes before its settings are listed; nodes know their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stayfinite.core.settings import Setting

MOST_SETTINGS = 5_000  # per file; limits alias bombs and vocabularies

MOST_DEPTH = 64
MOST_NAME = 200
"""Characters of a setting's name, kept from its end: nested keys may be arbitrarily long."""
MOST_ITEMS = 1_000  # of a list kept as a value
MOST_PARTS = 20_000
"""Nested parts of one value: an alias may repeat the same list a thousand times."""
MOST_WAITING = 4 * MOST_SETTINGS
"""Nodes in the queue: a node that contains itself would add its children forever."""


@dataclass(slots=True)
class Node:
    """A scalar, a dict of nodes or a list of nodes, and the line it starts on."""

    value: Any
    line: int = 0
    label: str = ""
    """The name of the enclosing call: `Namespace` of `Namespace(lr=1)`."""
    source: str = ""
    """Its file, if different from the root's."""
    kind: str = ""
    """Its setting kind, if different from the root's."""


def node_of(data: Any, line: int = 0) -> Node:
    """Convert plain data to a node; the inverse of ``plain_data``."""
    if isinstance(data, dict):
        return Node({str(key): node_of(each, line) for key, each in data.items()}, line)
    if isinstance(data, list):
        return Node([node_of(each, line) for each in data], line)
    return Node(data, line)


def settings_of(node: Node, source: str, *, prefix: str = "", kind: str = "file") -> list[Setting]:
    """A setting for every leaf, named by its path; at most ``MOST_SETTINGS``."""
    settings: list[Setting] = []
    items = 0
    for name, value, leaf in _leaves(node, prefix):
        settings.append(Setting(name, value, leaf.source or source, leaf.line, leaf.kind or kind))
        items += len(value) if isinstance(value, list) else 1
        if len(settings) >= MOST_SETTINGS or items > 4 * MOST_SETTINGS:
            break
    return settings


def plain_data(node: Node) -> Any:
    """Convert the node to plain data, cut at the depth and length limits."""
    return _plain(node, 0, iter(range(MOST_PARTS)))


def _plain(node: Node, depth: int, left: Iterator[int]) -> Any:
    """``left`` counts the parts that the value may still have."""
    if next(left, None) is None or depth >= 8:
        return "..."
    if isinstance(node.value, dict):
        within = islice(node.value.items(), MOST_ITEMS)
        return {key: _plain(each, depth + 1, left) for (key, each), _ in zip(within, left, strict=False)}
    if isinstance(node.value, list):
        return [_plain(each, depth + 1, left) for each, _ in zip(node.value[:MOST_ITEMS], left, strict=False)]
    return node.value


def _leaves(root: Node, prefix: str) -> Iterator[tuple[str, Any, Node]]:
    work: list[tuple[str, Node, int]] = [(prefix, root, 0)]
    visited = 0
    while work and visited < 4 * MOST_SETTINGS:
        name, node, depth = work.pop()
        visited += 1
        node = _unwrapped(node)
        value = node.value
        room = max(0, min(2 * MOST_SETTINGS, MOST_WAITING - len(work)))
        if isinstance(value, dict) and value and depth < MOST_DEPTH:
            within = list(islice(value.items(), room))
            children = [(f"{name}.{str(key)[-MOST_NAME:]}" if name else str(key), child) for key, child in within]
        elif isinstance(value, list) and depth < MOST_DEPTH and not _is_plain_list(value):
            children = [(f"{name}.{at}" if name else str(at), child) for at, child in enumerate(value[:room])]
        else:
            if name:
                yield name, _leaf_value(node, depth), node
            continue
        work.extend((child_name[-MOST_NAME:], child, depth + 1) for child_name, child in reversed(children))


def _leaf_value(node: Node, depth: int) -> Any:
    if depth >= MOST_DEPTH and isinstance(node.value, (dict, list)):
        return "..."
    return plain_data(node)


def _is_plain_list(items: list[Node]) -> bool:
    """Numbers, strings, and pairs or tables of them: `[0.9, 0.95]`, `[[0.9, 0.95], [0.9, 0.95]]`."""
    for item in items[:MOST_ITEMS]:
        if isinstance(item.value, dict):
            return False
        if isinstance(item.value, list) and any(
            isinstance(each.value, (dict, list)) for each in item.value[:MOST_ITEMS]
        ):
            return False
    return True


def _unwrapped(node: Node) -> Node:
    """Unwrap Weights & Biases' `lr: {desc: null, value: 0.1}`."""
    for _ in range(4):
        value = node.value
        if not (isinstance(value, dict) and "value" in value and value.keys() <= {"value", "desc"}):
            break
        node = value["value"]
    return node
