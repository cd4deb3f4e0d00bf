"""Initial weights that cannot learn: all zero, far too large, units that no input opens; constant features."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.calling import held_by
from stayfinite.readers.configs.course.computing import compute
from stayfinite.readers.configs.course.following import FUNCTIONS, Course
from stayfinite.readers.configs.course.models import trained
from stayfinite.readers.configs.course.picking import layers_of
from stayfinite.readers.configs.course.terms import Event, Term, constant, is_all, leaves, number, whole_of
from stayfinite.readers.configs.judges.fault import Fault, seen_at
from stayfinite.readers.configs.program.names import dotted_name

_ZERO = frozenset({"zeros_", "zero_"})
_FILLS = frozenset({"constant_", "fill_"})
DEEP_BELOW = -5.0
"""A bias from which inputs of a usual size do not bring a unit back above 0."""
FAR_TOO_LARGE = 10.0
"""A standard deviation of weights that makes logits of hundreds."""


def bad_starts(course: Course) -> Iterator[Fault]:
    """Weights that are overwritten before the training so that it cannot work."""
    began = next((at for at, each in enumerate(course.events) if each.kind == "backward"), len(course.events))
    models = trained(course)
    for event in course.events[:began]:
        filled = _filled(event)
        if filled is None:
            continue
        target, value = filled
        if value == 0.0 and event.sure and _all_of(target, models):
            yield Fault("bad-init", "all weights of the model begin at 0: its units stay alike", event.node.lineno)
        owner = target.parts[0] if target.op == "attribute" and target.parts else None
        if owner is None or not any(owner in held_by(model) for model in models):
            continue
        if target.name == "bias" and value is not None and value <= DEEP_BELOW and _before_relu(owner, models):
            text = f"biases of {value:g} before ReLU: no input opens a unit, and its gradient is 0"
            yield Fault("dead-units", text, event.node.lineno)
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
            yield Fault("bad-init", text, event.node.lineno)


def _filled(event: Event) -> tuple[Term, float | None] | None:
    """What is set to one number, in place."""
    call = event.result
    name = call.last
    if event.kind not in ("init", "in place") or name not in _ZERO | _FILLS or not call.parts:
        return None
    target = whole_of(call.parts[0])
    value = 0.0 if name in _ZERO else number(call.parts[1] if len(call.parts) > 1 else call.keywords.get("val"))
    return (target, value) if not (target.op == "attribute" and target.name == "grad") else None


def _spread(event: Event) -> tuple[Term, float] | None:
    call = event.result
    if event.kind not in ("init", "in place") or call.last != "normal_" or not call.parts:
        return None
    target = whole_of(call.parts[0])
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


def constant_features(course: Course) -> Iterator[Fault]:
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
            yield Fault("constant-feature", text, term.line)


def _is_column(key: Term) -> bool:
    return key.op == "row" and len(key.parts) == 2 and is_all(key.parts[0]) and number(key.parts[1]) is not None


GAIN = 4.0
"""Growth of a layer from which three layers exceed a factor of 20, with ReLU's loss of half the variance."""
_NARROWEST = 64
_FEWEST_LAYERS = 3
_STD = lazy_regex(r"weight_scale|init(?:ial)?(?:izer)?_(?:std|range|scale)|w_scale|weight_std|init_stddev")
_WIDTH = lazy_regex(r"(?:d_|n_)?(?:hidden|model|width|units|embd?)(?:_?(?:size|dims?|units|width|layers))?")
_DEPTH = lazy_regex(r"(?:self\.)?(?:n|num|n_hidden|num_hidden)_?layers?|depth|n_blocks")
_OTHER = lazy_regex(r"embed|\bnorm(?!al)|bias|pos|token|cls|query|noise|latent|ln_|bn\d?|gamma|sqrt|fan_in|fan_out", 2)
_WEIGHT = lazy_regex(r"(?:^|\.|\[')(?:W|[Ww]eights?)(?:_?\d+)?(?:$|')|\['W' \+")
_NORM = lazy_regex(r"(?:Batch|Layer|Group|RMS|Instance)Norm\w*|resnet\d+\w*|TransformerEncoder\w*", 2)
_INIT = lazy_regex(r"\w*init\w*|\w*reset\w*", 2)
_KEEP = 'choose biases by name (name.endswith("bias")); the weights of normalization layers start at 1'
_ONES = lazy_regex(r"ones_\(|fill_\(1|constant_\([^)]*, 1(?:\.0)?\)")
_COUNTS = lazy_regex(r"\.dim\(\)|\.ndim|ndimension\(\)|len\([\w.]*(?:size\(\)|shape|size)\)")
_TO_ZERO = lazy_regex(
    r"\.zero_\(\)|zeros_\(|fill_\(0(?:\.0)?\)|constant_\(\w+(?:\.data)?, (?:val=)?0(?:\.0)?\)|zeros_like\("
)


def initial_weights(course: Course) -> Iterator[Fault]:
    """Every start from which nothing is learned."""
    yield from _too_large(course)
    for node in course.nodes:
        if isinstance(node, ast.If):
            yield from _zeroed_scales(course, node)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield from _zero_weights(node, node.value)


def _too_large(course: Course) -> Iterator[Fault]:
    """A standard deviation that makes each of several wide layers multiply the size of its input."""
    told = list(_told(course))
    wide = [size for name, value, _ in told if _WIDTH.fullmatch(name) for size in _sizes(value) if size >= _NARROWEST]
    deep = [int(number(value) or 0) for name, value, _ in told if _DEPTH.fullmatch(name)]
    if not wide or max(len(wide), *deep, 0) < _FEWEST_LAYERS:
        return
    width = sorted(wide)[len(wide) // 2]
    for name, value, node in told:
        std = number(value)
        if std is not None and (name == "std" or _STD.fullmatch(name)) and std * math.sqrt(width) >= GAIN:
            growth = f"{std * math.sqrt(width):.0f} times larger at each layer"
            text = f"weights of standard deviation {std:g} over {width} inputs: {growth} ({name} = {std:g})"
            yield seen_at("bad-init", text, node, sure=False, when="exploded")


def _told(course: Course) -> Iterator[tuple[str, Term, ast.AST]]:
    """``(name, value, node)`` of all that is assigned or given by name; inputs of layers as `width`."""
    alone = Course(course.tree, compute)
    for node in course.nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = dotted_name(target, {}).rpartition(".")[2]
                if any(each.fullmatch(name) for each in (_WIDTH, _DEPTH, _STD)):
                    yield name, alone.value(node.value), node
    for call in {id(each.node): each for each in course.terms if isinstance(each.node, ast.Call)}.values():
        yield from ((name, each, call.node) for name, each in call.keywords.items() if name != "std")
        if call.last == "Linear" and call.op == "made" and call.parts:
            yield "width", call.parts[0], call.node
        if any(map(_STD.fullmatch, call.keywords)):
            yield from (("width", each, call.node) for each in call.parts)
        around = course.tests_around(call.node)
        spared = _OTHER.search(call.shown) or (_OTHER.search(around) and "Linear" not in around)
        if call.last == "normal_" and not spared:
            plain = len(call.parts) == 1 and not call.keywords
            std = Term("const", data=1.0) if plain else call.given(1 if call.op == "method" else 2, "std")
            yield from [("std", std, call.node)] if std is not None else []


def _sizes(value: Term) -> list[int]:
    """`100`, `[100, 100, 100]`, `[100] * 5`."""
    if (value.op, value.name) == ("binary", "Mult") and value.parts[0].op == "row":
        return _sizes(value.parts[0]) * min(int(number(value.parts[1]) or 1), 100)
    found = [each.data for each in (value.parts if value.op == "row" else (value,)) if each.op == "const"]
    return [each for each in found if isinstance(each, int) and not isinstance(each, bool)]


def _zeroed_scales(course: Course, node: ast.If) -> Iterator[Fault]:
    """`if p.dim() == 1: p.zero_()`: not only biases have one dimension, the scales of normalization do, too."""
    body = _of_one_dimension(node)
    first = ast.unparse(body[0]) if body and not isinstance(body[0], ast.If) else ""
    if not _TO_ZERO.search(first) or "grad" in first:
        return
    around = list(course.around(node))
    loop = next((each for each in around if isinstance(each, ast.For)), None)
    scope = next((each.name for each in around if isinstance(each, FUNCTIONS)), "")
    of_all = loop is not None and "parameters()" in ast.unparse(loop.iter)
    initial = not scope or _INIT.fullmatch(scope) is not None or "init" in ast.unparse(node)
    asked = f"{course.tests_around(node)} {ast.unparse(node.test)}"
    named = any(word in asked for word in ("isinstance", "name", "norm", "bias"))
    if of_all and initial and not named and not _ONES.search(course.code):
        words = "all parameters of one dimension become 0, the scales of normalization layers, too"
        yield seen_at("bad-init", words, node, sure=_NORM.search(course.code) is not None, fix=_KEEP)


def _of_one_dimension(node: ast.If) -> list[ast.stmt]:
    """What is done under `p.dim() == 1`, `len(p.shape) < 2`, or where `p.dim() > 1` is not so."""
    test = node.test
    if not isinstance(test, ast.Compare) or not _COUNTS.search(ast.unparse(test.left)):
        return []
    asked = (type(test.ops[0]), getattr(test.comparators[0], "value", None))
    if asked in ((ast.Eq, 1), (ast.LtE, 1), (ast.Lt, 2)):
        return node.body
    return node.orelse if asked in ((ast.Gt, 1), (ast.GtE, 2), (ast.NotEq, 1)) else []


def _zero_weights(node: ast.Assign, made: ast.Call) -> Iterator[Fault]:
    """`parameters["W1"] = np.zeros((n, m))`: all units of a layer stay alike."""
    sizes = made.args[0].elts if made.args and isinstance(made.args[0], ast.Tuple) else made.args
    wide = len(sizes) == 2 and all(getattr(each, "value", None) != 1 for each in sizes)
    if dotted_name(made.func, {}).endswith("zeros") and wide and _WEIGHT.search(ast.unparse(node.targets[0])):
        words = "weights that are all 0 give every unit of a layer the same gradient"
        yield seen_at("bad-init", words, node, sure=False, when="still")
