"""What a course keeps: terms that know how they were computed, names of functions, and what happened in which mode."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Passes = tuple[tuple[int, int], ...]
"""The loops around, outermost first: which one, and in which of its two passes."""


@dataclass(eq=False, slots=True)
class Term:
    """One value. The same object is the same value."""

    op: str
    """`const`, `call` (of a library), `made` (by a library's class), `applied`, `method`, `attribute`, `index`,
    `binary`, `compare`, `each` (of an iterable), `batch`, `part`, `row`, `either`, `set`, `instance`, `function`,
    `class`, `library`, `unknown`."""
    name: str = ""
    """The method, the attribute, the operator; of a library: with its module."""
    parts: tuple[Term, ...] = ()
    keywords: dict[str, Term] = field(default_factory=dict)
    node: Any = None
    data: Any = None
    attributes: dict[Any, Term] = field(default_factory=dict)
    passes: Passes = ()
    learns: bool = True
    """Whether gradients were recorded."""

    @property
    def last(self) -> str:
        """The name without its module."""
        return self.name.rpartition(".")[2]

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 0)

    def given(self, place: int, *names: str) -> Term | None:
        """An argument by its place (without the owner) or its name."""
        for name in names:
            if name in self.keywords:
                return self.keywords[name]
        at = place + (self.op in ("method", "applied"))
        return self.parts[at] if place >= 0 and at < len(self.parts) else None

    @property
    def shown(self) -> str:
        """The source of this value, shortened."""
        return ast.unparse(self.node).split("\n")[0][:80] if isinstance(self.node, ast.AST) else self.name


_LAYER = ("nn.", "torch.nn.")


def is_layer(term: Term) -> bool:
    """Whether it is a module of torch."""
    return term.op == "made" and term.name.startswith(_LAYER) and ".utils." not in term.name


OPTIMIZER_OF_TIMM = "timm.optim.create_optimizer"
HIDDEN = "hidden"
"""What a `made` model of other code holds: it has weights, and nobody sees its layers."""


def hides_weights(term: Term) -> bool:
    """Whether it is a model of other code."""
    return term.op == "made" and term.data is HIDDEN


NONE = Term("const")
UNKNOWN = Term("unknown")


def constant(term: Term | None) -> Any:
    """The number, word or None of a constant; None of everything else."""
    return term.data if term is not None and term.op == "const" else None


def number(term: Term | None) -> float | None:
    """The number that a term is, if it is one."""
    found = constant(term)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def leaves(term: Term) -> Iterator[Term]:
    """Everything that a value was computed from, itself first."""
    return all_from([term])


def all_from(terms: Iterable[Term]) -> Iterator[Term]:
    """The same of several values."""
    seen: set[int] = set()
    work = list(terms)
    while work:
        term = work.pop()
        if id(term) in seen:
            continue
        seen.add(id(term))
        yield term
        work.extend(term.parts)
        work.extend(term.keywords.values())
        if term.op in ("row", "dict"):
            work.extend(term.attributes.values())


_SHAPES = frozenset({
    "view", "reshape", "squeeze", "unsqueeze", "flatten", "transpose", "permute", "contiguous", "float", "to", "cuda",
    "cpu", "double", "clone", "t", "view_as", "reshape_as", "expand", "repeat",
})  # fmt: skip
VALUES_KEPT = _SHAPES | {"numpy", "detach", "item", "type_as", "type", "long", "int", "half", "tolist"}
_OF_TORCH = frozenset({"torch.squeeze", "torch.unsqueeze", "torch.flatten", "torch.reshape", "torch.transpose"})


def stripped(term: Term, methods: Container[str], calls: Container[str] = ()) -> Term:
    """A value without these methods and calls of it."""
    for _ in range(40):
        moved = (term.op == "method" and term.name in methods) or (term.op == "call" and term.last in calls)
        if not moved or not term.parts:
            break
        term = term.parts[0]
    return term


def is_all(term: Term) -> bool:
    """Whether it is `:`."""
    return term.op == "slice" and all(each.op == "const" and each.data is None for each in term.parts)


def whole_of(term: Term) -> Term:
    """A parameter, without `.data`."""
    while term.op == "attribute" and term.name == "data" and term.parts:
        term = term.parts[0]
    return term


def bare(term: Term) -> Term:
    """A value without what changes only its shape."""
    for _ in range(40):
        shaped = (term.op == "method" and term.name in _SHAPES) or (term.op == "call" and term.name in _OF_TORCH)
        if not (shaped or term.op == "index") or not term.parts:
            break
        term = term.parts[0]
    return term


def alike(one: Term, other: Term, depth: int = 0) -> bool:
    """Whether two values were computed in the same way of the same values."""
    if one is other:
        return True
    if depth > 30 or (one.op, one.name) != (other.op, other.name) or len(one.parts) != len(other.parts):
        return False
    if one.op in ("call", "method", "applied", "unknown", "each", "made", "instance") and not one.parts:
        return False
    if one.op == "const" or one.data is not None or other.data is not None:
        if type(one.data) is not type(other.data) or one.data != other.data:
            return False
        if one.op == "const":
            return True
    if is_random(one) or one.keywords.keys() != other.keywords.keys():
        return False
    pairs = [*zip(one.parts, other.parts, strict=True), *((one.keywords[k], other.keywords[k]) for k in one.keywords)]
    return all(alike(left, right, depth + 1) for left, right in pairs)


_RANDOM = frozenset({
    "rand", "randn", "randint", "randperm", "permutation", "rand_like", "randn_like", "normal", "uniform", "choice",
    "bernoulli", "multinomial", "dropout", "random", "sample", "shuffle", "normal_", "uniform_", "shuffled",
})  # fmt: skip


def is_random(term: Term) -> bool:
    """Whether each call has another result."""
    return term.op in ("call", "method", "shuffled") and term.last in _RANDOM


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
