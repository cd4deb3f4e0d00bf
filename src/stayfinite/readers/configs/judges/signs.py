"""Losses that are learned with the wrong sign."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import optimizers
from stayfinite.readers.configs.course.picking import truth
from stayfinite.readers.configs.course.terms import Term, number
from stayfinite.readers.configs.judges.losses import loss_name
from stayfinite.readers.configs.loops import LoopFault

_ON_PURPOSE = lazy_regex(
    r"adversar|attack|pgd|fgsm|unlearn|forget|\.grad\.sign|reverse_?grad|grad_?reverse|ascent|reward", 2
)


def flipped_signs(course: Course) -> Iterator[LoopFault]:
    """The only optimizer's only losses, and each of them is made larger."""
    made = optimizers(course)
    lines = {each.line for each in made}
    if len(lines) != 1 or _ON_PURPOSE.search(course.code):
        return
    losses = [each for each in course.events if each.kind == "backward"]
    signs = [sign_of(each.term) for each in losses]
    if not losses or len(set(signs)) != 1 or signs[0] == 0:
        return
    asked = made[0].keywords.get("maximize")
    grows = asked is not None and truth(asked) is True
    if asked is not None and truth(asked) is None:
        return
    if signs[0] > 0 and grows:
        text = "maximize=True makes the loss larger at each step"
        yield LoopFault("flipped-sign", text, made[0].line)
    elif signs[0] < 0 and not grows:
        text = f"{losses[0].term.shown} is minus the loss: each step makes the loss larger"
        yield LoopFault("flipped-sign", text, losses[0].node.lineno)


def sign_of(term: Term, depth: int = 0) -> int:
    """1 for a loss that is never negative, -1 for minus such a loss, 0 where that is not certain."""
    if depth > 20:
        return 0
    if loss_name(term) or _is_square(term):
        return 1
    if term.op == "unary" and term.name == "USub":
        return -sign_of(term.parts[0], depth + 1)
    if term.op == "binary" and term.name in ("Mult", "Div"):
        left, right = term.parts
        for value, other in ((left, right), (right, left)):
            factor = number(other)
            if factor and (term.name == "Mult" or other is right):
                return sign_of(value, depth + 1) * (1 if factor > 0 else -1)
        return sign_of(left, depth + 1) if term.name == "Div" and right.last == "len" else 0
    if term.op == "binary" and term.name == "Add":
        found = {sign_of(each, depth + 1) for each in term.parts if number(each) is None}
        return found.pop() if len(found) == 1 else 0
    if term.op == "method" and term.name == "scale" and len(term.parts) > 1:
        return sign_of(term.parts[1], depth + 1)
    if term.op == "method" and term.name in ("mean", "sum") and term.parts:
        return sign_of(term.parts[0], depth + 1)
    return 0


def _is_square(term: Term) -> bool:
    """`((a - b) ** 2).mean()`."""
    while term.op in ("method", "call") and term.last in ("mean", "sum") and term.parts:
        term = term.parts[0]
    if term.op == "binary" and term.name == "Pow":
        base, power = term.parts
    elif term.op in ("method", "call") and term.last in ("pow", "square", "abs") and term.parts:
        base = term.parts[0]
        power = term.parts[1] if term.last == "pow" and len(term.parts) > 1 else Term("const", data=2)
    else:
        return False
    return number(power) == 2 and base.op == "binary" and base.name == "Sub"
