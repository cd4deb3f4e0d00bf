"""Weights of a course, and which of them backward reaches from a value, unless the graph was cut or not recorded."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.calling import held_by
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.picking import FOREIGN, MODULES, STACKS, parts_in
from stayfinite.readers.configs.course.terms import OPTIMIZER_OF_TIMM, Term, constant, hides_weights, is_layer
from stayfinite.readers.configs.script_calls import is_optimizer

_WEIGHTED = lazy_regex(
    r"(?:Lazy)?(?:Linear|Bilinear|Conv\w+|Embedding(?:Bag)?)|(?:LSTM|GRU|RNN)(?:Cell)?|RNNCell|MultiheadAttention|"
    r"Transformer\w*"
)
_SCALES = lazy_regex(r"\w*Norm\w*|PReLU")
_SCHEDULE = lazy_regex(r"\w+LR|CosineAnnealingWarmRestarts|ReduceLROnPlateau|get_\w*schedule\w*")


def is_parameter(term: Term) -> bool:
    """Whether it is an `nn.Parameter` that is trained."""
    return term.op == "made" and term.last == "Parameter" and constant(term.keywords.get("requires_grad")) is not False


def has_weights(term: Term) -> bool:
    """Whether it is a layer whose weights have to be trained."""
    return is_parameter(term) or owns_weights(term) or (is_layer(term) and _WEIGHTED.fullmatch(term.last) is not None)


def owns_weights(term: Term) -> bool:
    """Whether it is a model of other code, and not only a wrapper of models that are known."""
    return hides_weights(term) and (
        term.last in ADAPTED or not any(is_module(each) for each in (*term.parts, *term.keywords.values()))
    )


ADAPTED = frozenset({"get_peft_model"})
"""What adds new weights to a model, and freezes the others."""


def is_trained(term: Term) -> bool:
    """Whether a gradient can reach it: a layer with weights or scales."""
    return has_weights(term) or (is_layer(term) and _SCALES.fullmatch(term.last) is not None)


def trained_in(model: Term) -> list[Term]:
    """The layers of a model that a gradient can reach."""
    return [each for each in held_by(model) if is_trained(each)]


def is_module(term: Term) -> bool:
    """Whether it is a model: a layer, or an instance of the script's own class of modules."""
    if term.op != "instance":
        return is_layer(term) or hides_weights(term)
    owners, bases = [term.data], list[Term]()
    for owner in owners[:20]:
        for base in owner.parts:
            (owners if base.op == "class" and len(owners) < 20 else bases).append(base)
    return any(each.last == "Module" for each in bases) or any(
        each.last == "Module" for owner in owners for each in owner.parts
    )


def is_open(term: Term, loose: set[int]) -> bool:
    """Whether a stack may hold other layers than are known."""
    if term.op == "starred":
        return is_open(term.parts[0], loose)
    if term.op in ("row", "dict"):
        return id(term) in loose or (term.data == "grown" and not isinstance(term.node, (ast.List, ast.Dict)))
    if term.op == "made" and term.last in STACKS:
        return any(each.op not in (*MODULES, "const") and is_open(each, loose) for each in term.parts)
    return term.op not in ("const", *MODULES)


def made_optimizer(term: Term) -> bool:
    """Whether it is an optimizer of a library."""
    known = is_optimizer(term.name) or term.name.startswith(OPTIMIZER_OF_TIMM)
    return term.op == "made" and known and bool(term.parts or term.keywords)


def scheduled_by(term: Term) -> Term | None:
    """The optimizer of a schedule."""
    if term.op not in ("made", "call") or not _SCHEDULE.fullmatch(term.last):
        return None
    found = term.given(0, "optimizer")
    return found if found is not None and made_optimizer(found) else None


def is_schedule(term: Term) -> bool:
    """Whether it is a schedule of a rate."""
    return term.op in ("made", "call") and term.data is not FOREIGN and _SCHEDULE.fullmatch(term.last) is not None


def _listed(term: Term) -> Term | None:
    """The model of a weight that a loop over `model.named_parameters()` puts into a list."""
    if term.op == "part" and term.data == 1 and term.parts[0].op == "each":
        named, term = "named_parameters", term.parts[0]
    elif term.op == "each" and isinstance(term.node, ast.For):
        named = "parameters"
    else:
        return None
    over = term.parts[0] if term.parts else term
    whole = over.op == "method" and over.name == named and over.parts[0].op in MODULES
    return over.parts[0] if whole else None


def held(term: Term | None, asked: set[int], loose: set[int]) -> list[Term] | None:
    """The models and tensors whose parameters these are; None where nobody can tell."""
    if term is None:
        return None
    if term.op == "method" and term.name in ("parameters", "trainable_parameters"):
        return [term.parts[0]] if term.parts[0].op in MODULES else None
    if is_parameter(term) or id(term) in asked:
        return [term]
    over = _listed(term)
    if over is not None:
        return [over]
    if term.op == "each" and isinstance(term.node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        tests = [test for each in term.node.generators for test in each.ifs]
        plain = len(term.node.generators) == 1 and all(ast.unparse(test).endswith(".requires_grad") for test in tests)
        return held(term.parts[0], asked, loose) if plain else None
    ways: list[Term] = []
    if term.op == "call" and term.name in ("list", "tuple", "set", "iter", "reversed") and len(term.parts) == 1:
        ways = [term.parts[0]]
    elif term.op == "call" and term.last == "filter":
        ways = list(term.parts[1:])
    elif (term.op == "call" and term.last == "chain") or (term.op, term.name) == ("binary", "Add"):
        ways = list(term.parts)
    elif term.op == "dict":
        ways = [term.attributes["params"]] if "params" in term.attributes else []
    elif term.op == "row" and id(term) not in loose:
        ways = parts_in(term)
    found = [held(each, asked, loose) for each in ways]
    if not found or any(each is None for each in found):
        return None
    return [one for each in found if each for one in each]


_CUT = frozenset({
    "item", "detach", "detach_", "numpy", "tolist", "argmax", "argmin", "argsort", "eq", "ne", "gt", "lt", "ge",
    "le", "long", "int", "bool", "size", "dim", "numel", "isnan", "isfinite", "multinomial", "bernoulli", "one_hot",
})  # fmt: skip
"""Methods and functions whose result has no graph."""
_CUTS = frozenset({"data", "shape", "dtype", "device", "ndim"})
"""Attributes without one."""
_OF_NUMBERS = frozenset({"int", "float", "bool", "len", "str", "round", "print", "range", "isinstance", "type"})
_MAKERS = frozenset({"tensor", "Tensor", "FloatTensor", "LongTensor", "as_tensor", "from_numpy", "array", "asarray"})
_OF_DATA = frozenset({"np", "sklearn", "pandas", "scipy", "torchvision"}) | sys.stdlib_module_names
_LOADED = ("torch.hub", "torch.load", "torch.jit", "torchvision.models")


@dataclass(frozen=True, slots=True)
class Reach:
    """What a value was computed by."""

    sources: frozenset[Term] = frozenset()
    """The layers that backward reaches from here."""
    seen: frozenset[Term] = frozenset()
    """The layers that it was computed by, with or without a graph."""
    known: bool = True
    """Whether nothing else can be behind it."""

    @property
    def cut(self) -> Reach:
        """The same without its graph."""
        return Reach(frozenset(), self.seen) if self.sources or not self.known else self


DATA = Reach()
NOBODY_KNOWS = Reach(known=False)


class Gradients:
    """Answers for the values of one course, which are added in the order in which they are made."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._found: dict[int, Reach] = {}
        self.wanted: set[int] = set()
        """Identities of the values that are asked for."""
        self.asked: set[int] = set()
        """Tensors that a gradient is asked for."""
        self.loose: set[int] = set()
        """Models that other code may have changed."""

    def add(self, term: Term) -> None:
        """Find out of a value, after all that it was computed from."""
        if id(term) in self.wanted:
            self._found[id(term)] = self._find(term)

    def of(self, term: Term, depth: int = 0) -> Reach:
        """What is behind a value."""
        if term.op in ("row", "dict") and depth < 8:
            inner = self.mixed(parts_in(term), depth=depth + 1)
            return Reach(inner.sources, inner.seen, known=False) if id(term) in self._course.loose else inner
        found = self._found.get(id(term))
        if found is None:  # what is not made yet is no part of anything
            found = DATA if id(term) in self.wanted else self._find(term)
        if id(term) in self.asked and not found.seen and not found.sources:
            return Reach(frozenset({term}), frozenset({term}))
        return found

    def ask(self, term: Term) -> None:
        """A gradient is asked for this tensor."""
        if term.op not in MODULES:
            self.asked.add(id(term))

    def is_leaf(self, term: Term) -> bool:
        """Whether a tensor is trained itself."""
        return self.of(term).sources == {term}

    def mixed(self, values: Iterable[Term], *, graph: bool = True, depth: int = 0) -> Reach:
        """What is computed from these values."""
        ways = [self.of(each, depth) for each in values if each.op != "const"]
        if len(ways) == 1 and (graph or not ways[0].sources):
            return ways[0]
        sources = frozenset[Term]().union(*(each.sources for each in ways)) if graph else frozenset[Term]()
        seen = frozenset[Term]().union(*(each.seen for each in ways))
        return Reach(sources, seen, not graph or all(each.known for each in ways))

    def _find(self, term: Term) -> Reach:
        if constant(term.keywords.get("requires_grad")) is True and term.op in ("call", "made"):
            self.asked.add(id(term))
            return self.mixed(term.parts).cut
        if term.op in ("const", "text"):
            return DATA
        if term.op == "library":
            return NOBODY_KNOWS if term.data is FOREIGN else DATA
        if term.op in ("function", "class", "instance", "super"):
            return NOBODY_KNOWS
        if term.op == "unknown":
            return self.mixed(term.parts) if term.parts and term.name != "deep" else NOBODY_KNOWS
        if id(term) in self._course.foreign:
            return NOBODY_KNOWS
        if term.op == "made":
            return self._made(term)
        if term.op == "applied":
            return self._applied(term)
        if term.op == "compare":
            return self.mixed(term.parts).cut
        if term.op == "attribute":
            return self._attribute(term)
        if term.op == "batch":
            return self.of(term.parts[0]).cut
        if term.op == "binary" and term.data == "more" and not term.learns and self.is_leaf(term.parts[0]):
            return self.of(term.parts[0])
        if term.op in ("call", "method"):
            return self._called(term)
        graph = term.learns or term.op not in ("binary", "unary", "bool", "set")
        return self.mixed(term.parts, graph=graph)

    def _made(self, term: Term) -> Reach:
        if is_parameter(term):
            return Reach(frozenset({term}), frozenset({term}))
        if is_layer(term) or hides_weights(term):
            return NOBODY_KNOWS
        mixed = self.mixed([*term.parts, *term.keywords.values()], graph=term.learns)
        of_torch = term.name.startswith("torch.") and not term.name.startswith("torch.utils.")
        return mixed if of_torch else mixed.cut

    def _called(self, term: Term) -> Reach:
        values = [*term.parts, *term.keywords.values()]
        head, last = term.name.partition(".")[0], term.last
        if term.op == "method" and last in ("parameters", "named_parameters") and term.parts[0].op in MODULES:
            inside = frozenset(trained_in(term.parts[0]))
            return Reach(inside, inside)
        if last in _CUT or (term.op == "call" and (term.name in _OF_NUMBERS or (head == "torch" and last in _MAKERS))):
            return self.mixed(values).cut
        if term.op == "method":
            return self.mixed(values, graph=term.learns)
        if term.name.startswith(_LOADED):
            return NOBODY_KNOWS
        if head in _OF_DATA:
            return self.mixed(values).cut
        return self.mixed(values, graph=term.learns)

    def _attribute(self, term: Term) -> Reach:
        owner = term.parts[0]
        if term.name in _CUTS and owner.op not in MODULES:
            return self.of(owner).cut
        return NOBODY_KNOWS if owner.op == "instance" or is_module(owner) else self.of(owner)

    def _applied(self, term: Term) -> Reach:
        layer, given = term.parts[0], [*term.parts[1:], *term.keywords.values()]
        ways = layer.parts if layer.op == "either" else (layer,)
        if not all(is_layer(each) or hides_weights(each) for each in ways):
            mixed = self.mixed([layer, *given], graph=term.learns)
            hidden = any(each.op == "made" and not each.name.startswith("torch.") for each in ways)
            return Reach(mixed.sources, mixed.seen, known=False) if hidden else mixed
        inside = frozenset(each for way in ways for each in trained_in(way))
        before = self.mixed(given, graph=term.learns) if given else DATA
        loose = any(id(each) in self.loose or is_open(each, self._course.loose) for each in ways)
        sources = before.sources | inside if term.learns else before.sources
        return Reach(sources, before.seen | inside, before.known and not loose)
