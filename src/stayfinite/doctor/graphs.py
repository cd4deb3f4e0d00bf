"""Walk autograd's graph from a loss to the leaves."""

from __future__ import annotations

from typing import Any

MOST_NODES = 100_000


def nodes_from(last: Any) -> set[Any]:
    """All nodes reachable backwards from this one."""
    met: set[Any] = set()
    waiting = [last]
    while waiting and len(met) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in met:
            continue
        met.add(node)
        waiting += [following for following, _ in node.next_functions]
    return met


def share_nodes(one: Any, other: Any) -> bool:
    """Whether two graphs share more than leaves, so that backward through one would free the other."""
    if one is None or other is None:
        return False
    theirs = nodes_from(other)
    return any(node in theirs and getattr(node, "variable", None) is None for node in nodes_from(one))
