"""YAML from PyYAML's parser events: nothing is constructed, aliases stay references, depth costs no stack."""

from __future__ import annotations

import importlib
from typing import Any

from stayfinite.readers.configs.scalars import scalar
from stayfinite.readers.configs.tree import Node, node_of
from stayfinite.readers.configs.values import value_in_text

MOST_EVENTS = 200_000
MOST_NESTING = 200
MOST_MERGED = 100_000  # total entries merged by `<<`: nested merges multiply


class BrokenYaml(Exception):
    """PyYAML is missing or cannot parse the text."""


def parse_yaml(text: str) -> list[Node]:
    """Return one node per document."""
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise BrokenYaml("PyYAML is not installed") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder()
    try:
        for count, event in enumerate(yaml.parse(text, Loader=loader)):
            builder.take(type(event).__name__, event)
            if count >= MOST_EVENTS:
                break
    except (yaml.YAMLError, RecursionError, ValueError, AttributeError, IndexError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or type(error).__name__
        raise BrokenYaml(f"{problem}, line {mark.line + 1}" if mark is not None else str(problem)) from None
    builder.close()
    return builder.documents


class _Builder:
    """Assembles events into nodes. A key waits in ``keys`` until its value is complete."""

    def __init__(self) -> None:
        self.documents: list[Node] = []
        self._open: list[Node] = []
        self._keys: list[str | None] = []
        self._anchors: dict[str, Node] = {}
        self._merged = 0

    def take(self, name: str, event: Any) -> None:
        if name == "ScalarEvent":
            node = node_of(_scalar(event), event.start_mark.line + 1)
            self._anchor(event, node)
            self._place(node, key=event.value)
        elif name == "AliasEvent":
            self._place(self._anchors.get(event.anchor, Node(None, event.start_mark.line + 1)))
        elif name in {"MappingStartEvent", "SequenceStartEvent"}:
            node = Node({} if name.startswith("M") else [], event.start_mark.line + 1)
            self._anchor(event, node)
            self._open.append(node)
            if len(self._open) > MOST_NESTING:
                raise BrokenYaml(f"nested deeper than {MOST_NESTING}, line {node.line}")
            self._keys.append(None)
        elif name in {"MappingEndEvent", "SequenceEndEvent"}:
            self._keys.pop()
            self._place(self._open.pop(), key="?")

    def close(self) -> None:
        """Close what is still open when the limit is reached."""
        while self._open:
            self._keys.pop()
            self._place(self._open.pop())

    def _anchor(self, event: Any, node: Node) -> None:
        if event.anchor:
            self._anchors[event.anchor] = node

    def _place(self, node: Node, key: str = "?") -> None:
        if not self._open:
            self.documents.append(node)
            return
        parent = self._open[-1].value
        if isinstance(parent, list):
            parent.append(node)
            return
        waiting = self._keys[-1]
        if waiting is None:
            self._keys[-1] = key
            return
        self._keys[-1] = None
        if waiting == "<<":
            for source in node.value if isinstance(node.value, list) else [node]:
                if isinstance(source.value, dict):
                    self._merged += len(source.value)
                    if self._merged > MOST_MERGED:
                        raise BrokenYaml(f"`<<` merges more than {MOST_MERGED:,} entries, line {node.line}")
                    for name, each in list(source.value.items()):
                        parent.setdefault(name, each)
        else:
            parent[waiting] = node


def _scalar(event: Any) -> Any:
    text: str = event.value
    tag = event.tag or ""
    if event.style in {"'", '"', "|", ">"} or tag.endswith(":str"):
        return text
    if not text:
        return None
    value = scalar(text)
    return value_in_text(text) if isinstance(value, str) else value
