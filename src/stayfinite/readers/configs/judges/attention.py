"""Attention whose weights do not sum to 1 over the keys."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.terms import Term, constant
from stayfinite.readers.configs.judges.fault import Fault, seen_at

_MEANT = lazy_regex(r"slot|sinkhorn|optimal.?transport|inverted|coattention|co_attention|doubly|bidirectional", 2)
_MASKED = frozenset({"masked_fill", "masked_fill_"})


def over_queries(course: Course) -> Iterator[Fault]:
    """`softmax(q @ k.transpose(-2, -1), dim=-2) @ v`, with a mask: each column sums to 1, and no row does."""
    if _MEANT.search(course.code):
        return
    for term in course.terms:
        if term.op != "binary" or term.name != "MatMult" or len(term.parts) != 2:
            continue
        soft = term.parts[0]
        for _ in range(3):
            if soft.op == "applied" and len(soft.parts) == 2 and "Dropout" in soft.parts[0].last:
                soft = soft.parts[1]
        if soft.op not in ("call", "method") or soft.last != "softmax" or not soft.parts:
            continue
        axis = constant(soft.given(0 if soft.op == "method" else 1, "dim"))
        if axis == -2 and _is_masked_product(soft.parts[0]):
            text = "a softmax over the queries (dim=-2), not the keys: use dim=-1"
            yield seen_at("softmax-axis", text, soft.node, fix="use dim=-1")


def _is_masked_product(scores: Term) -> bool:
    """Whether it is `q @ k.transpose(-2, -1)`, with some of it masked out."""
    masked = False
    for _ in range(8):
        if scores.op == "method" and scores.name in _MASKED and scores.parts:
            masked, scores = True, scores.parts[0]
        elif scores.op == "binary" and scores.name in ("Div", "Mult"):
            scores = scores.parts[0]
        else:
            break
    if not masked or (scores.op, scores.name) != ("binary", "MatMult"):
        return False
    right = scores.parts[1]
    axes = {constant(each) for each in right.parts[1:]} if right.op == "method" and right.name == "transpose" else set()
    return axes == {-1, -2} or (right.op == "attribute" and right.name == "mT")
