"""Kinds of values: plain data with its location, objects of the script, or unknown; and undoable writes to them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stayfinite.core.settings import Expression
from stayfinite.readers.configs.tree import MOST_ITEMS, Node

if TYPE_CHECKING:
    from stayfinite.readers.configs.program.state import Scope

MISSING: Any = object()  # no value at all

_births = itertools.count()


class Slots(dict[Any, Any]):
    """A table of names, attributes or entries that knows when it was created: what a branch creates is its own."""

    __slots__ = ("born",)

    def __init__(self, *entries: Any) -> None:
        super().__init__(*entries)
        self.born = next(_births)


Slot = tuple[int, Any]
Join = Callable[[dict[Any, Any], list[Any]], Any]


class Store:
    """All writes to names, attributes and entries go through here."""

    def __init__(self) -> None:
        self._trails: list[list[tuple[dict[Any, Any], Any, Any]]] = []

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set one entry, or remove it with ``MISSING``."""
        if self._trails:
            self._trails[-1].append((table, key, table.get(key, MISSING)))
        if value is MISSING:
            table.pop(key, None)
        else:
            table[key] = value

    def alternatives(self, branches: Sequence[Callable[[], bool]], join: Join) -> bool:
        """Follow alternative branches from the same state and merge what they wrote.

        A branch returns whether it leaves the function; its writes are then dropped. Returns whether all do.
        """
        tables: dict[int, dict[Any, Any]] = {}
        outcomes: list[dict[Slot, Any]] = []
        touched: dict[Slot, None] = {}
        for branch in branches:
            began = next(_births)
            self._trails.append([])
            try:
                leaves = branch()
            finally:
                trail = [each for each in self._trails.pop() if getattr(each[0], "born", -1) < began]
                final = {}
                for table, key, _ in trail:
                    tables[id(table)] = table
                    final[(id(table), key)] = table.get(key, MISSING)
                for table, key, old in reversed(trail):
                    if old is MISSING:
                        table.pop(key, None)
                    else:
                        table[key] = old
            if not leaves:
                outcomes.append(final)
                touched.update(dict.fromkeys(final))
        for slot in touched:
            table, key = tables[slot[0]], slot[1]
            before = table.get(key, MISSING)
            values = [outcome.get(slot, before) for outcome in outcomes]
            self.put(table, key, values[0] if len(values) == 1 else join(table, values))
        return not outcomes

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Writes in here belong to no branch: a module is evaluated once, wherever it is first imported."""
        trails, self._trails = self._trails, []
        try:
            yield
        finally:
            self._trails = trails


_MOST_TEXT = 300
_MOST_LINES = 20
_DEEPEST = 16


@dataclass(slots=True, eq=False)
class Origin:
    """A source file."""

    source: str
    lines: list[str] = field(default_factory=list)

    def text_of(self, node: ast.AST | None) -> str:
        """The source text of a node, shortened to one line."""
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
    """A value and where it is written."""

    data: Any
    """A scalar, or an instance of a class in this file."""
    origin: Origin
    line: int = 0
    node: ast.AST | None = None
    assumed: bool = False
    """Whether it depends on a default that the user can override."""

    @property
    def is_scalar(self) -> bool:
        """Whether it is a known number, string, bool or None."""
        return self.data is None or isinstance(self.data, (str, int, float, bool))

    @property
    def text(self) -> str:
        return self.origin.text_of(self.node)


@dataclass(slots=True, eq=False)
class Unknown:
    """Known only at run time."""

    least: int | None = None
    """A known lower bound: 1 for `torch.cuda.device_count()` on a machine with a GPU."""
    sources: tuple[Any, ...] = ()
    """What it was computed from, or is one of: the model, for `model.parameters()`."""


@dataclass(slots=True, eq=False)
class Table:
    """A dict, a namespace, a config."""

    entries: dict[Any, Value] = field(default_factory=Slots)
    is_told: bool = False
    """Whether its entries are already settings, as those of a parser are."""

    def __post_init__(self) -> None:
        if not isinstance(self.entries, Slots):
            self.entries = Slots(self.entries)


class Row:
    """A list, tuple or set. Its items are replaced as a whole, so that a write can be undone."""

    __slots__ = ("cell",)

    def __init__(self, items: list[Value]) -> None:
        self.cell: dict[str, list[Value]] = Slots({"items": items})

    @property
    def items(self) -> list[Value]:
        """The items; [] if they are unknown."""
        return self.cell.get("items", [])


def items_of(value: Value) -> list[Value] | None:
    """The items of a list, tuple or set; None for another value, or if they are unknown."""
    data: object = value.data
    return data.cell.get("items") if isinstance(data, Row) else None


@dataclass(slots=True, eq=False)
class External:
    """A library name, or a name that the script never sets."""

    name: str
    """As shown in settings: `AdamW` after `from torch.optim import AdamW`."""
    full: str
    """With its module: `torch.optim.AdamW`."""
    imported: bool = True


@dataclass(slots=True, eq=False)
class Function:
    """A function, method or lambda of the script."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    """Where it was defined."""
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
    """Fields that some instance overrides."""
    left: set[str] = field(default_factory=set)
    """Fields that some instance leaves at their defaults."""


@dataclass(slots=True, eq=False)
class Instance:
    """An instance of a script class."""

    of: Class
    attributes: dict[str, Value] = field(default_factory=Slots)
    assumed: bool = False


@dataclass(slots=True, eq=False)
class Made:
    """An object of a library class; only its arguments are known."""

    name: str
    attributes: dict[str, Value] = field(default_factory=Slots)
    untold: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks that record its settings on first use, for objects made by a module next to the script."""


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
    """A bound method of plain data: `kwargs.update`."""

    of: Value
    name: str


@dataclass(slots=True, eq=False)
class Module:
    """A module next to the script."""

    names: dict[str, Value]


@dataclass(slots=True, eq=False)
class OpenFile:
    """A file opened for reading."""

    path: str


@dataclass(slots=True, eq=False)
class Parser:
    """A command-line parser with the arguments added so far."""

    arguments: dict[str, Value] = field(default_factory=Slots)
    classes: list[Value] = field(default_factory=list)


@dataclass(slots=True)
class Call:
    """The arguments of a call, and the expression that makes it."""

    node: ast.expr
    positional: list[Value] = field(default_factory=list)
    keywords: dict[str, Value] = field(default_factory=dict)
    is_open: bool = False
    """Whether there are further, unknown arguments: missing ones take their defaults, or what the user passes."""
    written: dict[int | str, ast.expr] = field(default_factory=dict)
    """Expressions of the arguments, by place or name; those of `**more` have none."""

    @property
    def first(self) -> Value | None:
        return self.positional[0] if self.positional else None

    def second(self, name: str) -> Value | None:
        """The second argument, by place or by name."""
        return self.positional[1] if len(self.positional) > 1 else self.keywords.get(name)


@dataclass(slots=True)
class Limit:
    """Budget of nested parts to visit: shared values can be far larger than they look."""

    left: int = 2_000

    def spend(self) -> bool:
        """Use one part; return whether any was left."""
        self.left -= 1
        return self.left >= 0


def node_of(value: Value, shown: Value | None = None, depth: int = 0, limit: Limit | None = None) -> Node:
    """The value as a settings tree; unknown parts as the ``Expression`` at their place of use."""
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
