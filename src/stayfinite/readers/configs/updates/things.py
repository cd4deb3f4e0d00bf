"""What names of a training program stand for: models, optimizers, schedules, tensors and the layers behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from stayfinite.core.lazy_regex import lazy_regex

_DEEPEST = 20
_WEIGHTED = lazy_regex(
    r"(?:Lazy)?(?:Linear|Bilinear|Conv\w+|Embedding(?:Bag)?)|(?:LSTM|GRU|RNN)(?:Cell)?|RNNCell|MultiheadAttention|"
    r"Transformer\w*"
)
_SCALES = lazy_regex(r"\w*Norm\w*|PReLU")
_CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})


@dataclass(eq=False, slots=True)
class Thing:
    """A model, a layer, an optimizer, a schedule, or an object of the script."""

    kind: str
    """`module`, `leaf` (a tensor that is trained), `optimizer`, `scheduler`, `params`, `list`, `object`."""
    node: ast.AST
    layer: str = ""
    """`Linear` of a layer of `torch.nn`."""
    made_by: ast.ClassDef | None = None
    parts: dict[str, Value] = field(default_factory=dict)
    held: list[Thing] | None = None
    """Of an optimizer or of parameters: the models; None where it cannot be told."""
    on: Thing | None = None
    """The optimizer of a schedule."""
    copied: bool = False
    excused: bool = False
    """Loaded, frozen, in evaluation mode, or given to code that nobody sees."""
    frozen: bool = False
    stepped_frozen: bool = False
    """An optimizer that has stepped while all that it holds was frozen."""
    open: bool = False
    """A list that more may belong to."""
    name: str = ""

    @property
    def has_weights(self) -> bool:
        """Whether it is a layer whose weights have to be trained."""
        return self.layer == "Parameter" or _WEIGHTED.fullmatch(self.layer) is not None

    @property
    def is_trained(self) -> bool:
        """Whether a gradient can reach it: a layer with weights or scales."""
        return self.kind == "leaf" or self.has_weights or _SCALES.fullmatch(self.layer) is not None

    @property
    def is_input(self) -> bool:
        """Whether it is a tensor that a gradient is asked for, and no parameter of a model."""
        return self.kind == "leaf" and self.layer != "Parameter"

    @property
    def is_container(self) -> bool:
        """Whether it only calls its parts."""
        return self.layer in _CONTAINERS


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value that was computed."""

    sources: frozenset[Thing] = frozenset()
    """The layers that backward reaches from here."""
    seen: frozenset[Thing] = frozenset()
    """The layers that it was computed by, with or without a graph."""
    known: bool = True
    """Whether nothing else can be behind it."""


@dataclass(eq=False, slots=True)
class Function:
    """A function of the script, perhaps bound to an object."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    frame: Frame
    owner: Value = None
    is_method: bool = False


@dataclass(eq=False, slots=True)
class Class:
    """A class of the script."""

    node: ast.ClassDef
    frame: Frame


Value: TypeAlias = "Thing | Tensor | Function | Class | None"


@dataclass(eq=False, slots=True)
class Frame:
    """Names of one call, and those around it."""

    outer: Frame | None = None
    names: dict[str, Value] = field(default_factory=dict)
    returned: list[Value] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    """Names that `global` or `nonlocal` declares."""

    def find(self, name: str) -> Value:
        """What a name stands for; None where nobody knows."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.outer
        return None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to a model or an optimizer, in the order of execution."""

    kind: str
    """`backward`, `step`, `zero`, `schedule`, `build`, `forward`, `unknown`."""
    thing: Thing | None
    node: ast.AST
    loops: tuple[ast.AST, ...]
    conditions: tuple[tuple[ast.AST, str], ...]
    tensor: Value = None
    """Of a backward: the loss."""


def parts_of(value: Value, depth: int = 0) -> Iterator[Thing]:
    """A thing and all that belongs to it."""
    if not isinstance(value, Thing) or depth > _DEEPEST:
        return
    yield value
    for part in value.parts.values():
        if isinstance(part, Thing) and part.kind in ("module", "leaf", "list"):
            yield from parts_of(part, depth + 1)


def mixed(values: Iterable[Value], *, graph: bool = True) -> Tensor:
    """What is computed from these values; without a graph inside `no_grad`."""
    sources: set[Thing] = set()
    seen: set[Thing] = set()
    known = True
    for value in values:
        if isinstance(value, Tensor):
            sources |= value.sources
            seen |= value.seen
            known &= value.known
        elif isinstance(value, Thing) and value.kind == "leaf":
            sources.add(value)
            seen.add(value)
        elif isinstance(value, Thing) and value.kind == "list":
            inner = mixed(value.parts.values())
            sources |= inner.sources
            seen |= inner.seen
            known &= inner.known and not value.open
        else:
            known = False
    return Tensor(frozenset(sources if graph else ()), frozenset(seen), known or not graph)


def cut(value: Value) -> Tensor:
    """The value without its graph."""
    seen = mixed([value]).seen
    return Tensor(frozenset(), seen, known=True)


def merged(one: Value, other: Value) -> Value:
    """What a name stands for after two branches."""
    if one is other or one == other:
        return one
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return mixed([one, other])
    return None
