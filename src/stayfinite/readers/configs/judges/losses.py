"""What losses are given: probabilities where logits belong, logits where probabilities do, columns against rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.shapes import Shapes, crosses
from stayfinite.readers.configs.course.terms import Term, bare, constant, leaves
from stayfinite.readers.configs.loops import LoopFault

LINEAR, SOFTMAX, LOG_SOFTMAX, SIGMOID = "linear", "softmax", "log_softmax", "sigmoid"
_LAYERS = lazy_regex(r"(?:Lazy)?(?:Linear|Bilinear|Conv[123]d)")
_OF_CLASSES = frozenset({"CrossEntropyLoss", "cross_entropy"})
_OF_LOGS = frozenset({"NLLLoss", "nll_loss"})
_OF_SHARES = frozenset({"BCELoss", "binary_cross_entropy"})
_OF_LOGITS = frozenset({"BCEWithLogitsLoss", "binary_cross_entropy_with_logits"})
_PAIRED = frozenset(
    {"MSELoss", "mse_loss", "L1Loss", "l1_loss", "SmoothL1Loss", "smooth_l1_loss", "HuberLoss", "huber_loss"}
)
POSITIVE = _OF_CLASSES | _OF_LOGS | _OF_SHARES | _OF_LOGITS | _PAIRED


def loss_calls(course: Course) -> Iterator[tuple[str, Term, Term, Term]]:
    """``(loss, call, input, target)`` of each loss of torch."""
    for term in course.terms:
        name = loss_name(term)
        given, target = (term.given(0, "input"), term.given(1, "target")) if name else (None, None)
        if given is not None and target is not None:
            yield name, term, given, target


def loss_name(term: Term) -> str:
    """The name of torch's loss that a value is the result of."""
    if term.op == "call" and term.last in POSITIVE and term.name.startswith(("F.", "torch.", "nn.")):
        return term.last
    layer = term.parts[0] if term.op == "applied" else None
    if layer is not None and layer.op == "made" and layer.last in POSITIVE and layer.name.startswith(("nn.", "torch.")):
        return layer.last
    return ""


def kind_of(term: Term, depth: int = 0) -> str:
    """What a value is by its last operation: of a linear layer, a softmax, a sigmoid."""
    term = bare(term)
    if depth > 20:
        return ""
    if term.op == "either":
        kinds = {kind_of(each, depth + 1) for each in term.parts}
        return kinds.pop() if len(kinds) == 1 else ""
    name = term.last
    if term.op == "applied":
        layer = term.parts[0]
        if layer.op != "made" or not layer.name.startswith(("nn.", "torch.")):
            return ""
        return LINEAR if _LAYERS.fullmatch(layer.last) else _BY_LAYER.get(layer.last, "")
    if term.op == "method" or (term.op == "call" and term.name.startswith(("F.", "torch."))):
        if name == "log" and term.parts and kind_of(term.parts[0], depth + 1) == SOFTMAX:
            return LOG_SOFTMAX
        return name if name in (SOFTMAX, LOG_SOFTMAX, SIGMOID) else ""
    return ""


_BY_LAYER = {"Softmax": SOFTMAX, "LogSoftmax": LOG_SOFTMAX, "Sigmoid": SIGMOID}


def wrong_inputs(course: Course) -> Iterator[LoopFault]:
    """Losses that are given something else than they take."""
    told: set[tuple[str, int]] = set()
    for name, call, given, _ in loss_calls(course):
        found = _wrong(name, kind_of(given), _as_written(call) or given.shown)
        if found is not None and (found[0], call.line) not in told:
            told.add((found[0], call.line))
            yield LoopFault(found[0], found[1], call.line)


def _as_written(call: Term) -> str:
    """The first argument of a call, as it stands there: `model(x)` and not the last line of its forward."""
    node = call.node
    return ast.unparse(node.args[0])[:80] if isinstance(node, ast.Call) and node.args else ""


def _wrong(loss: str, kind: str, shown: str) -> tuple[str, str] | None:
    if loss in _OF_CLASSES and kind == SOFTMAX:
        return "softmax-before-cross-entropy", f"{shown} is a softmax, and {loss} applies another one"
    if loss in _OF_LOGITS and kind == SIGMOID:
        return "softmax-before-cross-entropy", f"{shown} is a sigmoid, and {loss} applies another one"
    if loss in _OF_LOGS and kind in (LINEAR, SOFTMAX, SIGMOID):
        has = {LINEAR: "logits", SOFTMAX: "probabilities", SIGMOID: "probabilities"}[kind]
        return "probability-loss-on-logits", f"{loss} takes log-probabilities, and gets {has}: {shown}"
    if loss in _OF_SHARES and kind == LINEAR:
        return "probability-loss-on-logits", f"{loss} takes probabilities, and gets logits: {shown}"
    return None


def wrong_axes(course: Course) -> Iterator[LoopFault]:
    """A softmax over the rows of a batch, whose result goes into a loss of classes."""
    told: set[int] = set()
    shapes = Shapes()
    for name, call, given, target in loss_calls(course):
        soft = bare(given)
        if name not in _OF_CLASSES | _OF_LOGS or kind_of(soft) not in (SOFTMAX, LOG_SOFTMAX):
            continue
        if soft.last == "log":
            soft = bare(soft.parts[0])
        layer = soft.parts[0] if soft.op == "applied" else soft
        axis = constant(layer.given(1 if layer.op == "call" else 0, "dim"))
        inner = soft.parts[1] if soft.op == "applied" else soft.parts[0]
        rows, scores = shapes.of(target), shapes.of(inner)
        many = (
            len(rows) > 0 if rows is not None else len(scores) > 1 if scores is not None else bare(target).op == "batch"
        )
        many = many and not (rows is None and target.op == "index")
        if axis == 0 and many and not isinstance(axis, bool) and call.line not in told and _as_given(given, soft):
            told.add(call.line)
            yield LoopFault("softmax-axis", f"{layer.shown} runs over the rows of the batch: use dim=1", layer.line)


def _as_given(given: Term, soft: Term) -> bool:
    """Whether the classes are still where the softmax had them."""
    return given is soft or not any(
        each.last in ("t", "transpose", "permute") for each in leaves(given) if each.op == "method"
    )


def crossed_shapes(course: Course) -> Iterator[LoopFault]:
    """A column against a row: in a loss, in a difference that becomes one, in an accuracy."""
    shapes = Shapes()
    told: set[int] = set()
    for name, call, given, target in loss_calls(course):
        one, other = shapes.of(given), shapes.of(target)
        if name in _PAIRED and crosses(one, other) and call.line not in told:
            told.add(call.line)
            text = f"{call.shown} of shapes {_in_words(one)} and {_in_words(other)}: each row meets every target"
            yield LoopFault("loss-broadcast", text, call.line)
    for term in course.terms:
        if term.line in told or len(term.parts) != 2:
            continue
        one, other = (shapes.of(each) for each in term.parts)
        if not crosses(one, other) or any(_is_stood_up(each) for each in term.parts):
            continue
        met = f"shapes {_in_words(one)} and {_in_words(other)}: each row meets every target"
        if (term.op, term.name) in (("compare", "Eq"), ("method", "eq")) and _is_averaged(course, term):
            told.add(term.line)
            yield LoopFault("metric-impossible", f"{term.shown} compares {met}", term.line, mild=True)
        elif term.op == "binary" and term.name == "Sub" and _is_squared(course, term):
            told.add(term.line)
            yield LoopFault("loss-broadcast", f"{term.shown} of {met}", term.line)


def _is_stood_up(term: Term) -> bool:
    """Whether an operand was made a column right there: `x.unsqueeze(1) - x` is a table on purpose."""
    return (term.op in ("method", "call") and term.last in ("unsqueeze", "view", "reshape")) or (
        term.op == "index" and "None" in term.shown
    )


def _in_words(shape: tuple[int | None, ...] | None) -> str:
    return (
        "("
        + ", ".join("N" if each is None else str(each) for each in shape or ())
        + ("," if len(shape or ()) == 1 else "")
        + ")"
    )


def _is_averaged(course: Course, term: Term) -> bool:
    """Whether nothing but the whole table of a comparison is counted."""
    users = _users(course, term)
    while len(users) == 1 and users[0].op == "method" and users[0].name in ("float", "int", "double", "cpu", "long"):
        users = _users(course, users[0])
    return bool(users) and all(
        each.op in ("method", "call") and each.last in ("sum", "mean") and "dim" not in each.keywords
        and len(each.parts) == 1 for each in users
    )  # fmt: skip


def _is_squared(course: Course, term: Term) -> bool:
    """Whether a difference becomes a mean square that is learned from."""
    users = _users(course, term)
    squared = [
        each for each in users if (each.op == "binary" and each.name in ("Pow", "Mult"))
        or (each.op in ("method", "call") and each.last in ("pow", "square", "abs"))
    ]  # fmt: skip
    ends = [user for each in squared for user in _users(course, each)]
    learned = {id(each.term) for each in course.events if each.kind == "backward"}
    whole = [each for each in ends if each.last in ("mean", "sum") and len(each.parts) == 1 and not each.keywords]
    return bool(whole) and len(whole) == len(ends) and any(id(each) in learned for each in whole)


def _users(course: Course, term: Term) -> list[Term]:
    return [each for each in course.terms if any(part is term for part in each.parts)]
