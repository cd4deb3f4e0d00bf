"""Data that a model is measured on and that were scaled in another way than those it learns from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import trained
from stayfinite.readers.configs.course.terms import VALUES_KEPT, Term, alike, constant, is_random, leaves, number
from stayfinite.readers.configs.loops import LoopFault

Step = tuple[str, float | str]


class Scaled(NamedTuple):
    """A model's input: the operations on its values, and where they start."""

    steps: tuple[Step, ...]
    root: Term
    last: Term
    """The last operation."""
    way: tuple[Term, ...]
    """The values between."""


def split_scales(course: Course) -> Iterator[LoopFault]:
    """Inputs of training and of validation that come from the same place and differ in their scale."""
    reached = course.learned
    changed = {id(each.term) for each in course.events if each.kind == "in place"}
    for model in trained(course):
        calls = [each for each in course.events if each.kind == "forward" and each.term is model and each.given]
        learned = [scaled(each.given[0]) for each in calls if each.learns and id(each.result) in reached]
        measured = [scaled(each.given[0]) for each in calls if not each.learns and id(each.result) not in reached]
        if not learned or not measured or None in learned or None in measured:
            continue
        kinds = {each.steps for each in learned if each}
        others = {each.steps for each in measured if each}
        one, other = learned[0], measured[0]
        if any(id(part) in changed for each in (*learned, *measured) if each for part in each.way):
            continue
        if one is None or other is None or len(kinds) != 1 or kinds & others or len(others) != 1:
            continue
        if all(each is not None and same_place(each.root, one.root) for each in (*learned, *measured)):
            told = other if len(other.steps) > len(one.steps) else one
            text = f"training inputs: {_in_words(one.steps)}; validation inputs: {_in_words(other.steps)}"
            yield LoopFault("splits-scaled-differently", text, told.last.line or other.root.line)


def _in_words(steps: tuple[Step, ...]) -> str:
    words = [
        f"{_WORDS.get(name, name)} {value if isinstance(value, str) else f'{value:g}'}".strip() for name, value in steps
    ]
    return "as they are" if not words else ", ".join(reversed(words))


_WORDS = {"Add": "plus", "Sub": "minus", "Mult": "times", "Div": "divided by"}


def same_place(one: Term, other: Term) -> bool:
    """Whether two values are the same, or come from one place of the script."""
    return one is other or (one.node is not None and one.node is other.node) or alike(one, other)


_STATISTICS = frozenset({"mean", "std", "var", "min", "max", "amax", "amin", "median", "sqrt", "tensor", "array",
                         "view", "clamp", "reshape", "clip", "quantile"})  # fmt: skip
_FUNCTIONS = frozenset({"log", "log1p", "sqrt", "tanh", "sigmoid", "normalize"})


def scaled(term: Term) -> Scaled | None:
    """How a value was scaled; None where there is more than one way."""
    steps: list[Step] = []
    way: list[Term] = []
    last = term
    for _ in range(80):
        before = len(steps)
        way.append(term)
        following = _before(term, steps)
        if following is None:
            return Scaled(tuple(steps), term, last, tuple(way))
        if following is _UNCLEAR:
            return None
        if len(steps) > before and before == 0:
            last = term
        term = following
    return None


_UNCLEAR = Term("unclear")


def _before(term: Term, steps: list[Step]) -> Term | None:
    """What a value was computed from; None at its root."""
    if term.op == "batch":
        return term.parts[0]
    if term.op == "either":
        return _UNCLEAR
    if term.op == "index":
        owner, key = term.parts
        return _from_set(owner, key) if owner.op == "set" else owner
    if term.op == "set":
        return term.parts[0] if term.parts[2].op in ("const", "call", "library") else _column(term, steps)
    if term.op == "part" and term.parts[0].op == "call" and term.parts[0].last == "train_test_split":
        place = term.data // 2
        return term.parts[0].parts[place] if place < len(term.parts[0].parts) else None
    if term.op == "method":
        return _method(term, steps)
    if term.op == "call" and term.parts and (term.last in _MOVES or term.last in _FUNCTIONS):
        if term.last in _FUNCTIONS:
            steps.append((term.last, ""))
        return term.parts[0]
    if term.op == "applied" and term.parts[0].op == "made" and len(term.parts) > 1 and "ransform" in term.parts[0].name:
        names = [each.last for each in leaves(term.parts[0]) if each.op == "made"]
        steps += [("normalized", "")] * ("Normalize" in names) + [("read by ToTensor", "")] * ("ToTensor" in names)
        return term.parts[1]
    if term.op == "binary" and term.name in _WORDS:
        return _binary(term, steps)
    return None


_MOVES = frozenset({"from_numpy", "tensor", "as_tensor", "FloatTensor", "array", "asarray", "stack"})


def _method(term: Term, steps: list[Step]) -> Term | None:
    if term.name in ("fit_transform", "transform") and len(term.parts) > 1:
        steps.append((f"scaled by {term.parts[0].last or 'a scaler'}", ""))
        return term.parts[1]
    if term.name in _FUNCTIONS or term.name in ("div_", "sub_", "mul_", "add_"):
        steps.append((term.name, ""))
        return term.parts[0]
    if term.name in ("div", "sub", "mul", "add") and len(term.parts) > 1:
        return _binary(
            Term("binary", {"div": "Div", "sub": "Sub", "mul": "Mult", "add": "Add"}[term.name], term.parts), steps
        )
    return term.parts[0] if term.name in VALUES_KEPT or term.name == "astype" else None


def _binary(term: Term, steps: list[Step]) -> Term | None:
    left, right = term.parts
    for data, other in ((left, right), (right, left)):
        if data is right and term.name in ("Sub", "Div"):
            break
        if any(is_random(each) for each in leaves(other)) and not _is_statistic(other):
            return data  # noise
        value = number(other)
        if value is not None or _is_statistic(other):
            if value is None or (value != (1.0 if term.name in ("Mult", "Div") else 0.0)):
                steps.append((term.name, "a statistic" if value is None else value))
            return data
    return None


def _is_statistic(term: Term) -> bool:
    if term.op == "binary":
        return all(_is_statistic(each) or number(each) is not None for each in term.parts)
    if term.op in ("method", "call", "part", "index") and term.parts:
        return (term.last in _STATISTICS and term.op in ("method", "call")) or _is_statistic(term.parts[0])
    return False


def _column(term: Term, steps: list[Step]) -> Term:
    """`x[:, 2] = x[:, 2] / 100`: one column of all rows."""
    old, key, value = term.parts
    whole = key.op == "row" and key.parts and key.parts[0].op == "slice" and all(
        constant(each) is None and each.op == "const" for each in key.parts[0].parts
    )  # fmt: skip
    inner = scaled(value) if whole else None
    if inner is None or not inner.steps:
        return _UNCLEAR if number(value) is None and value.op != "call" else old
    steps.append((f"column {key.parts[-1].shown} {_in_words(inner.steps)}", ""))
    return old


def _from_set(owner: Term, key: Term) -> Term:
    """`x[:8]` after `x[:8] = y` is y, and `x[8:]` is still the x before."""
    old, written, value = owner.parts
    if alike(key, written):
        return value
    if key.op == written.op == "slice":
        ends = [
            (constant(a), constant(b)) for a, b in ((key.parts[1], written.parts[0]), (written.parts[1], key.parts[0]))
        ]
        if any(isinstance(one, int) and one == other for one, other in ends):
            return old if old.op != "set" else _UNCLEAR
    return _UNCLEAR
