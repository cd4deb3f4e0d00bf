"""What a course keeps: the names of functions, what happened when, and in which mode each model is."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from stayfinite.readers.configs.course.terms import Term

Modes = dict[int, frozenset[str]]
Conditions = tuple[tuple[ast.AST, str], ...]
"""The branches around, outermost first."""


@dataclass(eq=False, slots=True)
class Frame:
    """The names of a function, or of the module."""

    names: dict[str, Term] = field(default_factory=dict)
    outer: Frame | None = None
    results: list[Term] = field(default_factory=list)
    yields: list[Term] = field(default_factory=list)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    owner: Term | None = None
    """The instance whose method this is."""
    of: ast.ClassDef | None = None
    """The class whose method this is."""
    left: list[Modes] = field(default_factory=list)
    """The modes with which it was left."""


@dataclass(eq=False, slots=True)
class Event:
    """What matters by its time: a call (`forward`, `backward`, `step`, `switch`, `init`, `seed`; of a library `called`,
    of other code `foreign`), a value that is written (`attribute`, `augmented`, `in place`).
    """

    kind: str
    term: Term
    """The model, the loss, the optimizer."""
    result: Term
    node: Any
    learns: bool
    """Whether gradients are recorded."""
    mode: frozenset[str]
    passes: tuple[tuple[int, int], ...]
    sure: bool
    """Whether it is reached in any case."""
    given: tuple[Term, ...] = ()
    """The arguments."""
    conditions: Conditions = ()
    at: int = 0
    """How many values were made before it."""


def joined_modes(states: list[Modes]) -> Modes:
    """The modes that models can be in after one of these."""
    keys = {key for state in states for key in state}
    start = frozenset({"train"})
    return {key: frozenset().union(*(state.get(key, start) for state in states)) for key in keys}
