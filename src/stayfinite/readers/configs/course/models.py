"""Numbers and models of a course: what options default to, which models are trained, and which change in evaluation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.calling import held_by
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.terms import UNKNOWN, Term, all_from, constant, hides_weights, leaves, number
from stayfinite.readers.configs.script_calls import is_optimizer

_DEEPEST = 8


def number_of(course: Course, term: Term | None, depth: int = 0) -> float | None:
    """The number that a value is unless somebody says otherwise; None where nobody can tell."""
    if term is None or depth > _DEEPEST:
        return None
    if term.op == "attribute":
        return option_default(course, term.name)
    if term.op == "unary" and term.name == "USub":
        inner = number_of(course, term.parts[0], depth + 1)
        return None if inner is None else -inner
    if term.op != "binary":
        return number(term)
    left, right = (number_of(course, each, depth + 1) for each in term.parts)
    if left is None or right is None:
        return None
    if term.name in ("Div", "FloorDiv"):
        return None if not right else left / right if term.name == "Div" else left // right
    return {"Add": left + right, "Sub": left - right, "Mult": left * right}.get(term.name)


def option_default(course: Course, name: str) -> float | None:
    """The default of `--name`, if it is a number."""
    return number(default_of(course, name) or UNKNOWN)


def default_of(course: Course, name: str) -> Term | None:
    """The default of `--name`."""
    for each in course.terms:
        if each.op == "method" and each.name == "add_argument":
            words = [str(constant(part)).lstrip("-").replace("-", "_") for part in each.parts[1:]]
            if name in words:
                return each.keywords.get("default")
    return None


_RUNNING = lazy_regex(r"(?:Sync)?BatchNorm(?:[123]d)?")
_DROPS = lazy_regex(r"(?:Alpha|FeatureAlpha)?Dropout(?:[123]d)?")
_DROPS_BY_DEFAULT = frozenset({"TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"})
_MAY_DROP = frozenset({"LSTM", "GRU", "RNN", "MultiheadAttention"})


def optimizers(course: Course) -> list[Term]:
    """Every optimizer that is made."""
    return [each for each in course.terms if each.op == "made" and is_optimizer(each.name)]


def trained(course: Course) -> list[Term]:
    """The models whose parameters an optimizer holds."""
    found: dict[int, Term] = {}
    for each in all_from(optimizers(course)):
        if each.op == "method" and each.name in ("parameters", "named_parameters") and each.parts:
            found.setdefault(id(each.parts[0]), each.parts[0])
    return list(found.values())


def is_learned(term: Term) -> bool:
    """Whether a gradient flows through a value: a layer or a parameter is among what it was computed from."""
    for each in leaves(term):
        if each.op == "applied" or (each.op == "made" and each.last == "Parameter"):
            return True
        if constant(each.keywords.get("requires_grad")) is True or each.name == "requires_grad_":
            return True
    return False


def changing_layers(course: Course, model: Term) -> str:
    """`Dropout`, `BatchNorm2d`: what makes evaluation differ from training; empty if nothing is known to."""
    for layer in held_by(model):
        if hides_weights(layer) and (said := _said_to_change(layer)):
            return said
        if layer.op == "made":
            name = layer.last
            if _RUNNING.fullmatch(name) and constant(layer.keywords.get("track_running_stats")) is not False:
                return name
            if _DROPS.fullmatch(name) and _drops(course, layer.given(0, "p"), 0.5):
                return name
            if name in _DROPS_BY_DEFAULT and _drops(course, layer.keywords.get("dropout"), 0.1):
                return f"{name} with dropout"
            if name in _MAY_DROP and _drops(course, layer.keywords.get("dropout"), 0.0):
                return f"{name} with dropout"
        elif layer.op == "instance" and "training=self.training" in ast.unparse(layer.data.node):
            return "dropout"
    return ""


def _said_to_change(model: Term) -> str:
    """The same of a model of other code, by its name and arguments."""
    for name, value in model.keywords.items():
        if "drop" in name and (number(value) or 0) > 0:
            return f"dropout ({name})"
    return "batch norm" if _NORMED.fullmatch(model.last) else ""


_NORMED = lazy_regex(r"\w*(?:resnet|resnext|densenet|efficientnet|mobilenet|inception)\w*", re.IGNORECASE)


def _drops(course: Course, share: Term | None, default: float) -> bool:
    """Whether a dropout drops anything."""
    if share is None:
        return default > 0
    known = number(share)
    if known is None and share.op == "attribute":
        known = option_default(course, share.name)
        return known is not None and known > 0
    return known is not None and known > 0


def calls_of(course: Course, *names: str) -> Iterator[ast.Call]:
    """The calls of methods of these names, wherever they stand."""
    for node in course.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node
