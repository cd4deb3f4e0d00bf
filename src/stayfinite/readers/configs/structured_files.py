"""YAML, TOML and INI as trees.

YAML comes from PyYAML's parser events: nothing is constructed, aliases stay references, depth costs no stack. The
parsers of TOML and INI drop line numbers, so each key's line is looked up in the text.
"""

from __future__ import annotations

import importlib
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression
from stayfinite.readers.configs.literals import value_in_text
from stayfinite.readers.configs.scalars import scalar
from stayfinite.readers.configs.tree import Node, node_of

MOST_EVENTS = 200_000
MOST_YAML_NESTING = 200
MOST_MERGED = 100_000  # total entries merged by `<<`: nested merges multiply


_MADE = lazy_regex(r"!(?:new|name|apply):([\w.]+)")
"""HyperPyYAML's `!new:torch.nn.Linear`: what an entry is made by."""
_REFERENCE = lazy_regex(r"<(\w+)>")


class Broken(Exception):
    """The text breaks its format, or PyYAML is missing."""


def parse_yaml(text: str) -> list[Node]:
    """Return one node per document."""
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise Broken("PyYAML is not installed") from None
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
        raise Broken(f"{problem}, line {mark.line + 1}" if mark is not None else str(problem)) from None
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
        self._references: list[Node] = []

    def take(self, name: str, event: Any) -> None:
        if name == "ScalarEvent":
            node = node_of(_scalar(event), event.start_mark.line + 1)
            if event.tag == "!ref":
                self._references.append(node)
            self._anchor(event, node)
            self._place(node, key=event.value)
        elif name == "AliasEvent":
            self._place(self._anchors.get(event.anchor, Node(None, event.start_mark.line + 1)))
        elif name in {"MappingStartEvent", "SequenceStartEvent"}:
            node = Node({} if name.startswith("M") else [], event.start_mark.line + 1)
            self._anchor(event, node)
            made = _MADE.fullmatch(event.tag or "")
            if made is not None and isinstance(node.value, dict):
                node.value["_target_"] = Node(made[1], node.line)
            self._open.append(node)
            if len(self._open) > MOST_YAML_NESTING:
                raise Broken(f"nested deeper than {MOST_YAML_NESTING}, line {node.line}")
            self._keys.append(None)
        elif name in {"MappingEndEvent", "SequenceEndEvent"}:
            self._keys.pop()
            self._place(self._open.pop(), key="?")

    def close(self) -> None:
        """Close what is still open when the limit is reached."""
        while self._open:
            self._keys.pop()
            self._place(self._open.pop())
        for node in self._references:
            self._resolve(node)

    def _resolve(self, node: Node) -> None:
        """`!ref <lr>` is the value of the top-level key; anything computed stays an expression."""
        named = _REFERENCE.fullmatch(str(node.value))
        top = self.documents[0].value if self.documents else None
        found = top.get(named[1]) if named is not None and isinstance(top, dict) else None
        if found is not None and found not in self._references and not isinstance(found.value, (dict, list)):
            node.value, node.line = found.value, found.line
        else:
            node.value = Expression(str(node.value))

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
                        raise Broken(f"`<<` merges more than {MOST_MERGED:,} entries, line {node.line}")
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


_SECTION = lazy_regex(r"\[{1,2}([^\[\]]+)\]{1,2}")
_PAIR = lazy_regex(r"""([\w."'-][\w."' -]{0,200})[=:](.*)""")
_KEY = lazy_regex(r"\s*+(?:\[{1,2}[^\]=#]*\]|[^=#]*=)")
_MOST_WIDTH = 4_000
_MOST_LINES = 20_000
MOST_NESTING = 64  # parts of one key, `a.b.c`: the parser's time grows with their square
MOST_STEPS = 200_000  # parts of all keys together


def parse_toml(text: str) -> Node:
    """The whole document."""
    import tomllib

    _refuse_depth(text)
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise Broken(str(error)) from None
    return _with_lines(data, _lines_of(text))


def _refuse_depth(text: str) -> None:
    """Refuse keys that would take the parser minutes."""
    steps = 0
    for number, line in enumerate(text.split("\n"), 1):
        key = _KEY.match(line)
        deep = sum(1 for step in key.group().split(".") if step.strip()) if key else 0
        steps += deep
        if deep > MOST_NESTING:
            raise Broken(f"a key of more than {MOST_NESTING} steps, line {number}")
        if steps > MOST_STEPS:
            raise Broken(f"more than {MOST_STEPS:,} steps in its keys, line {number}")


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
