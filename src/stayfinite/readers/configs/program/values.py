"""What a value can be: plain data with the place that wrote it, something of the script's own, or unknown."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stayfinite.core.settings import Expression
from stayfinite.readers.configs.program.store import Slots
from stayfinite.readers.configs.tree import MOST_ITEMS, Node

if TYPE_CHECKING:
    from stayfinite.readers.configs.program.state import Scope

_MOST_TEXT = 300
_MOST_LINES = 20
_DEEPEST = 16


@dataclass(slots=True, eq=False)
class Origin:
    """A file that values are written in."""

    source: str
    lines: list[str] = field(default_factory=list)

    def text_of(self, node: ast.AST | None) -> str:
        """The source text of a node, on one line and not too long."""
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if not first or last > len(self.lines):
            return ""
        picked = [line.encode() for line in self.lines[first - 1 : min(last, first + _MOST_LINES)]]
        if last - first < _MOST_LINES:
            picked[-1] = picked[-1][: getattr(node, "end_col_offset", None)]
        picked[0] = picked[0][getattr(node, "col_offset", 0) :]
        text = " ".join(part.decode(errors="replace").strip() for part in picked)
        return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."


@dataclass(slots=True, eq=False)
class Value:
    """One value: its data, and where it is written."""

    data: Any
    """A plain scalar, or one of the classes of this file."""
    origin: Origin
    line: int = 0
    node: ast.AST | None = None
    assumed: bool = False
    """Whether it rests on a default that the one who starts the program can change."""

    @property
    def is_scalar(self) -> bool:
        """Whether it is a known number, text, bool or None."""
        return self.data is None or isinstance(self.data, (str, int, float, bool))

    @property
    def text(self) -> str:
        """As it is written."""
        return self.origin.text_of(self.node)


@dataclass(slots=True, eq=False)
class Unknown:
    """Only running the program would tell."""

    least: int | None = None
    """A number that it is not below, where that is known: of `torch.cuda.device_count()` on a machine with a card."""


@dataclass(slots=True, eq=False)
class Table:
    """A dict, a namespace, a config."""

    entries: dict[Any, Value] = field(default_factory=Slots)
    is_told: bool = False
    """Whether its entries are settings already: those of a parser are its arguments."""

    def __post_init__(self) -> None:
        if not isinstance(self.entries, Slots):
            self.entries = Slots(self.entries)


@dataclass(slots=True, eq=False)
class Row:
    """A list, tuple or set. Its items are replaced as a whole, so that a write can be taken back."""

    cell: dict[str, list[Value]]

    def __post_init__(self) -> None:
        self.cell = Slots(self.cell)

    @property
    def items(self) -> list[Value]:
        """The items; of a list that was filled in a way that is not followed, none."""
        return self.cell.get("items", [])


@dataclass(slots=True, eq=False)
class External:
    """A name of a library, or one that the script never sets."""

    name: str
    """As settings show it: `AdamW` after `from torch.optim import AdamW`."""
    full: str
    """With its module: `torch.optim.AdamW`."""
    imported: bool = True


@dataclass(slots=True, eq=False)
class Function:
    """A function, method or lambda of the script."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    """In which it was defined."""
    defaults: dict[str, Value]
    owner: Class | None = None
    bound: Value | None = None
    """`self`."""
    kinds: frozenset[str] = frozenset()
    """`property`, `staticmethod`, `classmethod`, and the last names of other decorators."""


@dataclass(slots=True, eq=False)
class Class:
    """A class of the script."""

    node: ast.ClassDef
    scope: Scope
    names: dict[str, Value]
    bases: list[Value]
    fields: list[str] = field(default_factory=list)
    """Annotated names, in order."""
    made: list[Value] = field(default_factory=list)
    """Its first instances."""
    overruled: set[str] = field(default_factory=set)
    """Fields that some instance was given."""
    left: set[str] = field(default_factory=set)
    """Fields that some instance left at their defaults."""


@dataclass(slots=True, eq=False)
class Instance:
    """An object of such a class."""

    of: Class
    attributes: dict[str, Value] = field(default_factory=Slots)
    assumed: bool = False


@dataclass(slots=True, eq=False)
class Made:
    """An object of a library's class: what it was given is known, the rest is not."""

    name: str
    attributes: dict[str, Value] = field(default_factory=Slots)
    untold: list[Callable[[], None]] = field(default_factory=list)
    """Settings to tell of once it is used, where a module beside the script makes it at its top."""


@dataclass(slots=True, eq=False)
class Super:
    """`super()`."""

    instance: Value
    of: Class


@dataclass(slots=True, eq=False)
class Partial:
    """`functools.partial(function, ...)`."""

    function: Value
    positional: list[Value]
    keywords: dict[str, Value]


@dataclass(slots=True, eq=False)
class Method:
    """A method of plain data, waiting for its call: `kwargs.update`."""

    of: Value
    name: str


@dataclass(slots=True, eq=False)
class Module:
    """A module that lies beside the script."""

    names: dict[str, Value]


@dataclass(slots=True, eq=False)
class OpenFile:
    """A file that the script reads from."""

    path: str


@dataclass(slots=True, eq=False)
class Parser:
    """A parser of the command line: what it offers so far."""

    arguments: dict[str, Value] = field(default_factory=Slots)
    classes: list[Value] = field(default_factory=list)


@dataclass(slots=True)
class Limit:
    """How many parts of a value are still looked at: one that holds others many times over is larger than it seems."""

    left: int = 2_000

    def spend(self) -> bool:
        """Use one up; whether there was one."""
        self.left -= 1
        return self.left >= 0


def node_of(value: Value, shown: Value | None = None, depth: int = 0, limit: Limit | None = None) -> Node:
    """The value as a tree of settings; what is unknown as the ``Expression`` that stands where it is used."""
    data = value.data
    limit = limit or Limit()
    kind = "default" if value.assumed else ""
    if value.is_scalar:
        return Node(data, value.line, source=value.origin.source, kind=kind)
    depth = depth if limit.spend() else _DEEPEST
    if isinstance(data, Table) and depth < _DEEPEST:
        entries = {
            str(key): node_of(each, depth=depth + 1, limit=limit)
            for key, each in list(data.entries.items())[:MOST_ITEMS]
        }
        return Node(entries, value.line, source=value.origin.source, kind=kind)
    if isinstance(data, Row) and "items" in data.cell and depth < _DEEPEST:
        items = [node_of(each, depth=depth + 1, limit=limit) for each in data.items[:MOST_ITEMS]]
        return Node(items, value.line, source=value.origin.source, kind=kind)
    used = shown or value
    return Node(Expression(used.text), used.line, source=used.origin.source)
