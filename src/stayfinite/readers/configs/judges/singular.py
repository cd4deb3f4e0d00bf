"""Roots, logarithms and quotients at a place that the script itself makes 0."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import is_learned
from stayfinite.readers.configs.course.terms import Term, alike, bare, number
from stayfinite.readers.configs.loops import LoopFault

_STEEP = frozenset({"sqrt", "log", "log2", "log10", "rsqrt", "reciprocal"})


def singular_places(course: Course) -> Iterator[LoopFault]:
    """Values without a finite gradient, on the way to a loss that is learned."""
    reached = course.learned
    told: set[tuple[str, int]] = set()
    for term in course.terms:
        if id(term) not in reached:
            continue
        found = _unused_branch(term) or _of_the_same(term) or _of_relu(term)
        if found is not None and is_learned(term) and (found[0], term.line) not in told:
            told.add((found[0], term.line))
            yield LoopFault(found[0], found[1], term.line)


def _steep(term: Term) -> tuple[str, Term] | None:
    """``(name, argument)`` of an operation that is not finite at 0."""
    if term.op in ("call", "method") and term.last in _STEEP and len(term.parts) == 1:
        return term.last, term.parts[0]
    if term.op == "binary" and term.name == "Pow" and (number(term.parts[1]) or 1.0) < 1.0:
        return "a root", term.parts[0]
    if term.op == "binary" and term.name == "Div":
        return "division", term.parts[1]
    return None


def _unused_branch(term: Term) -> tuple[str, str] | None:
    """`torch.where(x > 0, torch.sqrt(x), 0)`: the gradient of the branch not taken is NaN times 0."""
    if term.op != "call" or term.last != "where" or len(term.parts) != 3:
        return None
    condition, chosen, _ = term.parts
    steep = _steep(chosen)
    asks = condition.op == "compare" and condition.name in ("Gt", "NotEq") and number(condition.parts[1]) == 0
    if steep is not None and asks and steep[1].op != "call" and alike(condition.parts[0], steep[1]):
        return (
            "where-nan-branch",
            f"{chosen.shown} has a NaN gradient where {condition.shown} is false: NaN * 0 stays NaN",
        )
    return None


def _of_the_same(term: Term) -> tuple[str, str] | None:
    """The root of a distance between a value and its own copy."""
    steep = _steep(term)
    if steep is None or steep[0] == "division":
        return None
    inside = steep[1]
    while inside.op in ("method", "call") and inside.last in ("sum", "mean") and inside.parts:
        inside = inside.parts[0]
    called = inside.op in ("method", "call") and inside.last in ("pow", "square") and inside.parts
    if not called and (inside.op, inside.name) != ("binary", "Pow"):
        return None
    inside = inside.parts[0]
    if inside.op == "binary" and inside.name == "Sub" and alike(_itself(inside.parts[0]), _itself(inside.parts[1])):
        text = f"{term.shown} is the root of 0: both values are the same, and its gradient is not finite"
        return "loss-formula-singularity", text
    return None


def _itself(term: Term) -> Term:
    """A value without copies and factors of 1."""
    for _ in range(10):
        copied = term.op == "method" and term.name in ("clone", "to", "float", "contiguous") and term.parts
        if not copied and not ((term.op, term.name) == ("binary", "Mult") and number(term.parts[1]) == 1.0):
            break
        term = term.parts[0]
    return term


def _of_relu(term: Term) -> tuple[str, str] | None:
    """A logarithm of what ReLU leaves: 0 for half of all values."""
    steep = _steep(term)
    if steep is None:
        return None
    inside = bare(steep[1])
    by_call = inside.op in ("call", "method") and inside.last == "relu"
    by_layer = inside.op == "applied" and inside.parts[0].op == "made" and inside.parts[0].last == "ReLU"
    if (by_call or by_layer) and steep[0] != "a root":
        return "loss-formula-singularity", f"{term.shown}: {steep[0]} of a ReLU's output, which is 0 for many values"
    return None
