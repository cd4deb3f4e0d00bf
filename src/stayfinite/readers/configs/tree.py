"""What every structured file becomes before it is settings: a tree of nodes that remember their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stayfinite.core.settings import Setting

MOST_SETTINGS = 5_000
"""Of one file: what an alias bomb or a vocabulary may become at most."""

MOST_DEPTH = 64
MOST_NAME = 200
"""Characters of a setting's name, counted from its end: keys inside keys of any length add up to no more."""
MOST_ITEMS = 1_000
"""Of one list that is kept as a value."""
MOST_PARTS = 20_000
"""Of one value, with all that is inside of it: an alias may stand for the same list a thousand times."""
MOST_WAITING = 4 * MOST_SETTINGS
"""Nodes that wait for their turn: one that holds itself would add its children for ever."""


@dataclass(slots=True)
class Node:
    """A value and the line it begins on: a plain value, a dict of nodes, or a list of nodes."""

    value: Any
    line: int = 0
    label: str = ""
    """The name of the call that holds it: `Namespace` of `Namespace(lr=1)`."""
    source: str = ""
    """The file that it is written in, where that is another one than its root's."""
    kind: str = ""
    """The kind of its setting, where that is another one than its root's."""


def node_of(data: Any, line: int = 0) -> Node:
    """Plain data as a node; the counterpart of ``plain_data``."""
    if isinstance(data, dict):
        return Node({str(key): node_of(each, line) for key, each in data.items()}, line)
    if isinstance(data, list):
        return Node([node_of(each, line) for each in data], line)
    return Node(data, line)


def settings_of(node: Node, source: str, *, prefix: str = "", kind: str = "file") -> list[Setting]:
    """A setting for every leaf, named by the path that leads to it; at most ``MOST_SETTINGS``."""
    settings: list[Setting] = []
    items = 0
    for name, value, leaf in _leaves(node, prefix):
        settings.append(Setting(name, value, leaf.source or source, leaf.line, leaf.kind or kind))
        items += len(value) if isinstance(value, list) else 1
        if len(settings) >= MOST_SETTINGS or items > 4 * MOST_SETTINGS:
            break
    return settings


def plain_data(node: Node) -> Any:
    """The node as plain Python data, cut where it is deeper or longer than a setting may be."""
    return _plain(node, 0, iter(range(MOST_PARTS)))


def _plain(node: Node, depth: int, left: Iterator[int]) -> Any:
    """``left`` counts down what the value may still hold."""
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
    """Numbers, strings, and pairs or tables of such: `[0.9, 0.95]`, `[[0.9, 0.95], [0.9, 0.95]]`."""
    for item in items[:MOST_ITEMS]:
        if isinstance(item.value, dict):
            return False
        if isinstance(item.value, list) and any(
            isinstance(each.value, (dict, list)) for each in item.value[:MOST_ITEMS]
        ):
            return False
    return True


def _unwrapped(node: Node) -> Node:
    """Weights & Biases writes `lr: {desc: null, value: 0.1}`."""
    for _ in range(4):
        value = node.value
        if not (isinstance(value, dict) and "value" in value and value.keys() <= {"value", "desc"}):
            break
        node = value["value"]
    return node
