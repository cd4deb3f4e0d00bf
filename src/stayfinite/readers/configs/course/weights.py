"""Weights of a course: the layers of a model, tensors that are trained themselves, and what an optimizer holds."""

from __future__ import annotations

import ast

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.calling import held_by
from stayfinite.readers.configs.course.library import FOREIGN
from stayfinite.readers.configs.course.picking import MODULES, parts_in
from stayfinite.readers.configs.course.terms import Term, constant, is_layer
from stayfinite.readers.configs.script_calls import is_optimizer

_WEIGHTED = lazy_regex(
    r"(?:Lazy)?(?:Linear|Bilinear|Conv\w+|Embedding(?:Bag)?)|(?:LSTM|GRU|RNN)(?:Cell)?|RNNCell|MultiheadAttention|"
    r"Transformer\w*"
)
_SCALES = lazy_regex(r"\w*Norm\w*|PReLU")
_SCHEDULE = lazy_regex(r"\w+LR|CosineAnnealingWarmRestarts|ReduceLROnPlateau|get_\w*schedule\w*")
_STACKS = frozenset({"Sequential", "ModuleList", "ModuleDict"})


def is_parameter(term: Term) -> bool:
    """Whether it is an `nn.Parameter` that is trained."""
    return term.op == "made" and term.last == "Parameter" and constant(term.keywords.get("requires_grad")) is not False


def has_weights(term: Term) -> bool:
    """Whether it is a layer whose weights have to be trained."""
    return is_parameter(term) or (is_layer(term) and _WEIGHTED.fullmatch(term.last) is not None)


def is_trained(term: Term) -> bool:
    """Whether a gradient can reach it: a layer with weights or scales."""
    return has_weights(term) or (is_layer(term) and _SCALES.fullmatch(term.last) is not None)


def trained_in(model: Term) -> list[Term]:
    """The layers of a model that a gradient can reach."""
    return [each for each in held_by(model) if is_trained(each)]


def is_module(term: Term) -> bool:
    """Whether it is a model: a layer, or an instance of the script's own class of modules."""
    if term.op != "instance":
        return is_layer(term)
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
    if term.op == "made" and term.last in _STACKS:
        return any(each.op not in (*MODULES, "const") and is_open(each, loose) for each in term.parts)
    return term.op not in ("const", *MODULES)


def made_optimizer(term: Term) -> bool:
    """Whether it is an optimizer of a library."""
    return term.op == "made" and is_optimizer(term.name) and bool(term.parts or term.keywords)


def scheduled_by(term: Term) -> Term | None:
    """The optimizer of a schedule."""
    if term.op not in ("made", "call") or not _SCHEDULE.fullmatch(term.last):
        return None
    found = term.given(0, "optimizer")
    return found if found is not None and made_optimizer(found) else None


def is_schedule(term: Term) -> bool:
    """Whether it is a schedule of a rate."""
    return term.op in ("made", "call") and term.data is not FOREIGN and _SCHEDULE.fullmatch(term.last) is not None


def held(term: Term | None, asked: set[int], loose: set[int]) -> list[Term] | None:
    """The models and tensors whose parameters these are; None where nobody can tell."""
    if term is None:
        return None
    if term.op == "method" and term.name in ("parameters", "trainable_parameters"):
        return [term.parts[0]] if term.parts[0].op in MODULES else None
    if is_parameter(term) or id(term) in asked:
        return [term]
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
