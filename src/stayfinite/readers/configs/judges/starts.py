"""Initial weights that cannot learn: all zero, units that no input opens, far too large; constant features."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from stayfinite.readers.configs.course.calling import held_by
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import trained
from stayfinite.readers.configs.course.picking import layers_of
from stayfinite.readers.configs.course.state import Event
from stayfinite.readers.configs.course.terms import Term, constant, leaves, number
from stayfinite.readers.configs.loops import LoopFault

_ZERO = frozenset({"zeros_", "zero_"})
_FILLS = frozenset({"constant_", "fill_"})
DEEP_BELOW = -5.0
"""A bias from which inputs of a usual size do not bring a unit back above 0."""
FAR_TOO_LARGE = 10.0
"""A standard deviation of weights that makes logits of hundreds."""


def bad_starts(course: Course) -> Iterator[LoopFault]:
    """Weights that are overwritten before the training so that it cannot work."""
    began = next((at for at, each in enumerate(course.events) if each.kind == "backward"), len(course.events))
    models = trained(course)
    for event in course.events[:began]:
        filled = _filled(event)
        if filled is None:
            continue
        target, value = filled
        if value == 0.0 and event.sure and _all_of(target, models):
            yield LoopFault("bad-init", "all weights of the model begin at 0: its units stay alike", event.node.lineno)
        owner = target.parts[0] if target.op == "attribute" and target.parts else None
        if owner is None or not any(owner in held_by(model) for model in models):
            continue
        if target.name == "bias" and value is not None and value <= DEEP_BELOW and _before_relu(owner, models):
            text = f"biases of {value:g} before ReLU: no input opens a unit, and its gradient is 0"
            yield LoopFault("dead-units", text, event.node.lineno)
    for event in course.events[:began]:
        std = _spread(event)
        if std is None or std[1] < FAR_TOO_LARGE or std[0].name != "weight":
            continue
        owner = std[0].parts[0]
        if (
            owner.op == "made"
            and owner.last in ("Linear", "Conv2d", "Conv1d")
            and any(owner in held_by(m) for m in models)
        ):
            text = f"weights begin with a standard deviation of {std[1]:g}: outputs are far too large"
            yield LoopFault("bad-init", text, event.node.lineno)


def _filled(event: Event) -> tuple[Term, float | None] | None:
    """What is set to one number, in place."""
    call = event.result
    name = call.last
    if event.kind not in ("init", "in place") or name not in _ZERO | _FILLS or not call.parts:
        return None
    target = call.parts[0]
    while target.op == "attribute" and target.name == "data" and target.parts:
        target = target.parts[0]
    value = 0.0 if name in _ZERO else number(call.parts[1] if len(call.parts) > 1 else call.keywords.get("val"))
    return (target, value) if not (target.op == "attribute" and target.name == "grad") else None


def _spread(event: Event) -> tuple[Term, float] | None:
    call = event.result
    if event.kind not in ("init", "in place") or call.last != "normal_" or not call.parts:
        return None
    target = call.parts[0]
    while target.op == "attribute" and target.name == "data" and target.parts:
        target = target.parts[0]
    std = number(call.keywords.get("std", call.parts[2] if len(call.parts) > 2 else None))
    return None if std is None or target.op != "attribute" or not target.parts else (target, std)


def _all_of(target: Term, models: list[Term]) -> bool:
    """Whether a value is each of a whole model's parameters: `for p in model.parameters()`."""
    over = target.parts[0] if target.op == "each" and target.parts else None
    if over is None and target.op == "part" and target.parts[0].op == "each" and target.data == 1:
        over = target.parts[0].parts[0]
    if over is None or over.op != "method" or over.name not in ("parameters", "named_parameters"):
        return False
    model = over.parts[0]
    deep = sum(
        each.op == "made" and each.last in ("Linear", "Conv1d", "Conv2d", "LSTM", "GRU") for each in held_by(model)
    )
    return any(each is model for each in models) and deep > 1


def _before_relu(layer: Term, models: list[Term]) -> bool:
    for model in models:
        for stack in held_by(model):
            layers = layers_of(stack)
            for one, other in itertools.pairwise(layers):
                if one is layer and other.op == "made" and other.last in ("ReLU", "ReLU6"):
                    return True
    return False


def constant_features(course: Course) -> Iterator[LoopFault]:
    """A column that is set to one number, then divided by its standard deviation, which is 0."""
    told: set[int] = set()
    for term in course.terms:
        if term.op != "binary" or term.name != "Div" or term.line in told:
            continue
        below = term.parts[1]
        deviation = below.parts[0] if below.op == "part" and below.parts else below
        if deviation.op not in ("method", "call") or deviation.last not in ("std", "std_mean") or not deviation.parts:
            continue
        by_column = constant(deviation.given(1 if deviation.op == "call" else 0, "dim", "axis")) == 0
        changed = deviation.parts[0]
        if not by_column or changed.op != "set" or not _is_column(changed.parts[1]) or number(changed.parts[2]) is None:
            continue
        if any(each is changed for each in leaves(term.parts[0])):
            told.add(term.line)
            text = f"{changed.shown} is constant: its standard deviation is 0, and {term.shown} is NaN"
            yield LoopFault("constant-feature", text, term.line)


def _is_column(key: Term) -> bool:
    if key.op != "row" or len(key.parts) != 2 or key.parts[0].op != "slice":
        return False
    return (
        all(constant(each) is None and each.op == "const" for each in key.parts[0].parts)
        and number(key.parts[1]) is not None
    )
