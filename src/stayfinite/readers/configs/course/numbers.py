"""Numbers of a course: constants, defaults of options, and what is computed from them."""

from __future__ import annotations

from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.terms import Term, constant, number

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
    """The default of `--name`."""
    for each in course.terms:
        if each.op == "method" and each.name == "add_argument":
            words = [str(constant(part)).lstrip("-").replace("-", "_") for part in each.parts[1:]]
            if name in words:
                return number(each.keywords.get("default"))
    return None
