"""Names, frames, and evaluation limits."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stayfinite.readers.configs.program.joining import join_slot
from stayfinite.readers.configs.program.store import Slots, Store
from stayfinite.readers.configs.program.surroundings import Surroundings
from stayfinite.readers.configs.program.values import Class, Function, Origin, Unknown, Value

if TYPE_CHECKING:
    from stayfinite.readers.configs.program.modules import Modules
    from stayfinite.readers.configs.program.telling import Telling

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
    call: Callable[[Run, Value, list[Value], dict[str, Value], ast.expr], Value]
    call_assumed: Callable[[Run, Value, ast.expr], Value]
    """Call something as the user would: without arguments, each of which could be passed."""
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

    def unknown(self, node: ast.AST, least: int | None = None) -> Value:
        """A value known only at run time."""
        return Value(Unknown(least), self.frame.scope.origin, getattr(node, "lineno", 0), node)

    def either(self, branches: list[Callable[[], bool]], *, names: bool = True) -> bool:
        """Follow alternative branches; return whether all of them leave the function."""
        scopes = {id(scope.names) for frame in self.frames for scope in _chain(frame.scope)}

        def join(table: dict[Any, Any], values: list[Any]) -> Any:
            return join_slot(values, names=names and id(table) in scopes)

        return self.store.alternatives(branches, join)


def _chain(scope: Scope) -> Iterator[Scope]:
    each: Scope | None = scope
    while each is not None:
        yield each
        each = each.parent
