"""Names, frames and limits of one evaluation; copies and merges of values; the GPU and command that are assumed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stayfinite.core.settings import Setting
from stayfinite.readers.configs.program.values import (
    MISSING,
    Call,
    Class,
    External,
    Function,
    Instance,
    Limit,
    Origin,
    Row,
    Slots,
    Store,
    Table,
    Unknown,
    Value,
)
from stayfinite.readers.configs.program.weights import Weights
from stayfinite.rules.cards import Card

if TYPE_CHECKING:
    from stayfinite.readers.configs.program.modules import Modules
    from stayfinite.readers.configs.program.program import Telling


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


_DEEPEST = 8


def same(one: Value, other: Value, depth: int = 0, limit: Limit | None = None) -> bool:
    """Whether two values are certainly equal."""
    limit = limit or Limit()
    left, right = one.data, other.data
    if left is right:
        return not isinstance(left, Unknown)
    if one.is_scalar and other.is_scalar:
        return type(left) is type(right) and bool(left == right)
    if depth > _DEEPEST or type(left) is not type(right) or not limit.spend():
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
    if depth < _DEEPEST and limit.spend() and all(isinstance(each.data, Table) for each in values):
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
    frames: list[Frame] = field(default_factory=list)
    store: Store = field(default_factory=Store)
    weights: Weights = field(default_factory=Weights)
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
