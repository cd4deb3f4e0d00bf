"""What an evaluation knows: kinds of values with their place, undoable writes, names, frames, limits, and the GPU and
command that are assumed.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stayfinite.core.settings import Expression, Setting
from stayfinite.readers.configs.tree import MOST_ITEMS, Node
from stayfinite.rules.cards import Card

if TYPE_CHECKING:
    from stayfinite.readers.configs.program.files import Modules
    from stayfinite.readers.configs.program.program import Telling
    from stayfinite.readers.configs.program.weights import Weights

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """By default, some CUDA GPU and no arguments."""

    card: Card | None = None
    arguments: Mapping[str, Setting] = field(default_factory=dict)
    """Flags and environment variables of the command, by normalized name."""

    @property
    def cuda(self) -> bool:
        """The value of `torch.cuda.is_available()`."""
        return self.card is None or not self.card.is_none

    @property
    def bf16(self) -> bool | None:
        """The value of `torch.cuda.is_bf16_supported()`; None if the GPU is not known."""
        return None if self.card is None else self.card.bf16


ANY_CARD = Surroundings()


_DEEPEST_ALIKE = 8


def same(one: Value, other: Value, depth: int = 0, limit: Limit | None = None) -> bool:
    """Whether two values are certainly equal."""
    limit = limit or Limit()
    left, right = one.data, other.data
    if left is right:
        return not isinstance(left, Unknown)
    if one.is_scalar and other.is_scalar:
        return type(left) is type(right) and bool(left == right)
    if depth > _DEEPEST_ALIKE or type(left) is not type(right) or not limit.spend():
        return False
    if isinstance(left, External):
        return bool(left.full == right.full)
    if isinstance(left, Table):
        return left.entries.keys() == right.entries.keys() and all(
            same(each, right.entries[key], depth + 1, limit) for key, each in left.entries.items()
        )
    if isinstance(left, Row):
        return len(left.items) == len(right.items) and all(
            same(each, twin, depth + 1, limit) for each, twin in zip(left.items, right.items, strict=True)
        )
    return False


def joined(values: list[Value], depth: int = 0, limit: Limit | None = None) -> Value:
    """What is known about a value that is one of these."""
    first = values[0]
    limit = limit or Limit()
    if all(each.data is first.data or same(first, each) for each in values[1:]):
        return first
    if depth < _DEEPEST_ALIKE and limit.spend() and all(isinstance(each.data, Table) for each in values):
        keys = dict.fromkeys(key for each in values for key in each.data.entries)
        entries = {key: _entry([each.data.entries.get(key, MISSING) for each in values], depth, limit) for key in keys}
        return Value(Table(entries), first.origin, first.line, first.node, first.assumed)
    return Value(unknown_from(values), first.origin, first.line, first.node)


def unknown_from(values: Iterable[Value]) -> Unknown:
    """An unknown value that is one of these, or is computed from them."""
    return Unknown(sources=tuple(each.data for each in values if not each.is_scalar))


def join_slot(values: list[Any], *, names: bool) -> Any:
    """Merge the values of an entry, for the store. ``names``: reading a missing entry is an error.

    A name that only one branch sets has that value wherever it is read. A dict key may be missing.
    """
    present = [each for each in values if each is not MISSING]
    if not present:
        return MISSING
    if isinstance(present[0], list):
        return present[0] if all(_same_items(present[0], each) for each in values) else MISSING
    return joined(present) if names or len(present) == len(values) else _entry(values, 0, Limit())


def _entry(values: list[Any], depth: int, limit: Limit) -> Value:
    present = [each for each in values if each is not MISSING]
    if len(present) == len(values):
        return joined(present, depth + 1, limit)
    first = present[0]
    return Value(Unknown(), first.origin, first.line, first.node)


def _same_items(one: Any, other: Any) -> bool:
    if other is MISSING or len(one) != len(other):
        return False
    return all(same(each, twin) for each, twin in zip(one, other, strict=True))


_COPIES_DEEPEST = 8


def copied(value: Value, depth: int = 0, limit: Limit | None = None) -> Value:
    """A deep copy; a very large value is copied only up to the limit."""
    data = value.data
    limit = limit or Limit()
    depth = depth if limit.spend() else _COPIES_DEEPEST
    if depth < _COPIES_DEEPEST and isinstance(data, Table):
        data = Table({key: copied(each, depth + 1, limit) for key, each in data.entries.items()}, data.is_told)
    elif depth < _COPIES_DEEPEST and isinstance(data, Row) and "items" in data.cell:
        data = Row([copied(each, depth + 1, limit) for each in data.items])
    elif depth < _COPIES_DEEPEST and isinstance(data, Instance):
        own = Slots({name: copied(each, depth + 1, limit) for name, each in data.attributes.items()})
        data = Instance(data.of, own, data.assumed)
    else:
        return value
    return Value(data, value.origin, value.line, value.node, value.assumed)


MOST_STEPS = 40_000  # expressions evaluated per script; afterwards calls are not followed
MOST_CALLS_OF_ONE = 24
MOST_FRAMES = 16
DEEPEST = 150
"""Nesting of expressions and statements across all calls: what Python's stack can take."""


@dataclass(slots=True, eq=False)
class Scope:
    """The names of a module, a function or a class."""

    origin: Origin
    parent: Scope | None = None
    names: dict[str, Value] = field(default_factory=Slots)
    is_class: bool = False
    outer: set[str] = field(default_factory=set)
    """Names declared `global` or `nonlocal`."""
    folder: str | None = None
    """Folder of a module's siblings; None if it has none."""
    is_main: bool = False
    tree: ast.Module | None = None
    """Of a module beside the script."""

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def find(self, name: str) -> Value | None:
        """The value of a name, from here outward; class names are visible only in the class body."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or not scope.is_class):
                return scope.names[name]
            scope = scope.parent
        return None

    def owner_of(self, name: str) -> Scope:
        """The scope that an assignment to this name changes."""
        if name not in self.outer:
            return self
        scope = self.parent
        while scope is not None and scope.parent is not None and name not in scope.names:
            scope = scope.parent
        return scope or self


@dataclass(slots=True, eq=False)
class Frame:
    """A function, class body or module under evaluation."""

    scope: Scope
    function: Function | None = None
    returns: list[Value] = field(default_factory=list)
    given: dict[str, Value] = field(default_factory=dict)
    """The bound parameters."""
    target: str = ""
    """The name that the current statement assigns to."""
    line: int = 0
    """Of the current statement."""
    uncertain: int = 0
    """Number of enclosing branches that may not be taken."""


@dataclass(slots=True, eq=False)
class Run:
    """Shared state of one evaluation."""

    surroundings: Surroundings
    telling: Telling
    modules: Modules
    evaluate: Callable[[Run, ast.expr], Value]
    execute: Callable[[Run, list[ast.stmt]], bool]
    """Execute statements; return whether they leave the function."""
    call: Callable[[Run, Value, Call], Value]
    call_assumed: Callable[[Run, Value, ast.expr], Value]
    """Call something as the user would: without arguments, each of which could be passed."""
    weights: Weights
    frames: list[Frame] = field(default_factory=list)
    store: Store = field(default_factory=Store)
    environment: dict[str, Value] = field(default_factory=dict)
    """`os.environ`, as far as the script sets it."""
    declared: dict[str, list[tuple[ast.expr, Scope]]] = field(default_factory=dict)
    """Declared defaults of arguments and fields, by name."""
    functions: list[Function] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    followed: dict[ast.AST, int] = field(default_factory=dict)
    """How often each function was followed."""
    generators: dict[ast.AST, bool] = field(default_factory=dict)
    """Which functions yield."""
    dismissed: set[ast.AST] = field(default_factory=set)
    """Functions called only by branches that are not taken."""
    rounds: int = 1
    """Iterations of the enclosing loops."""
    steps: int = 0
    depth: int = 0

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @contextmanager
    def inside(self, frame: Frame) -> Iterator[None]:
        """Evaluate in another frame."""
        self.frames.append(frame)
        try:
            yield
        finally:
            self.frames.pop()

    @property
    def spent(self) -> bool:
        """Whether calls are no longer followed."""
        return self.steps > MOST_STEPS

    @property
    def main_line(self) -> int:
        """Line of the innermost statement in the main script."""
        for frame in reversed(self.frames):
            if frame.scope.module.is_main:
                return frame.line
        return 0

    @property
    def targets(self) -> str:
        """All names that the current value is assigned to, outermost first."""
        return " ".join(frame.target for frame in self.frames if frame.target)

    @property
    def in_doubt(self) -> bool:
        """Whether it is unknown if this statement is reached."""
        return any(frame.uncertain for frame in self.frames)

    def value(self, data: Any, node: ast.AST, *used: Value) -> Value:
        """A value written here; assumed if any value it was made from is."""
        assumed = any(each.assumed for each in used)
        return Value(data, self.frame.scope.origin, getattr(node, "lineno", 0), node, assumed)

    def unknown(self, node: ast.AST, *used: Value, least: int | None = None) -> Value:
        """A value known only at run time."""
        data = unknown_from(used) if used else Unknown(least)
        return Value(data, self.frame.scope.origin, getattr(node, "lineno", 0), node)

    def used(self, value: Value, node: ast.AST) -> Value:
        """A value where it is used: an unknown one has the text of its use, and stays the same object."""
        if not isinstance(value.data, Unknown):
            return value
        return Value(value.data, self.frame.scope.origin, getattr(node, "lineno", 0), node)

    def either(self, branches: list[Callable[[], bool]]) -> bool:
        """Follow alternative branches; return whether all of them leave the function."""
        scopes = {id(scope.names) for frame in self.frames for scope in _chain(frame.scope)}

        def join(table: dict[Any, Any], values: list[Any]) -> Any:
            return join_slot(values, names=id(table) in scopes)

        return self.store.alternatives(branches, join)


def _chain(scope: Scope) -> Iterator[Scope]:
    each: Scope | None = scope
    while each is not None:
        yield each
        each = each.parent
