"""Next-token models that see what they have to predict: targets that are not shifted, attention without a mask."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import trained
from stayfinite.readers.configs.course.state import Event
from stayfinite.readers.configs.course.terms import Term, alike, bare, leaves, number
from stayfinite.readers.configs.judges.losses import loss_calls
from stayfinite.readers.configs.loops import LoopFault

_CAUSAL = lazy_regex(r"\btril\(|\btriu\(|is_causal ?= ?True|causal_mask|subsequent_mask")
_MOVES = frozenset({"view", "reshape", "flatten", "contiguous", "to", "long", "cuda", "clone"})


def leaks(course: Course) -> Iterator[LoopFault]:
    """Cross entropies of a next-token model that can look at the next token."""
    causal = _CAUSAL.search(course.code) is not None
    reached = course.learned
    models = {id(each) for each in trained(course)}
    calls = [each for each in course.events if each.kind == "forward" and id(each.term) in models and each.given]
    for name, call, given, target in loss_calls(course):
        if id(call) not in reached or name not in ("CrossEntropyLoss", "cross_entropy", "nll_loss", "NLLLoss"):
            continue
        made = {id(each) for each in leaves(given)}
        for event in calls:
            tokens, wanted = _moved(event.given[0]), _moved(target)
            if not (id(event.result) in made or _holds(event, made)) or _is_cut(given, event):
                continue
            if causal and alike(tokens, wanted) and tokens.op != "const" and _is_attention_masked(given):
                text = f"the targets {target.shown} are the model's own inputs: shift them by one token"
                yield LoopFault("causal-leak", text, call.line)
                return
            if is_shifted(tokens, wanted):
                open_ones = _open_attention(given)
                if open_ones is not None:
                    text = f"{open_ones.shown} without a causal mask: the model sees the token that it predicts"
                    yield LoopFault("causal-leak", text, open_ones.line)
                    return


def _holds(event: Event, made: set[int]) -> bool:
    """Whether a part of what a forward returned is among these; a loss computed inside of it is."""
    if event.result.op in ("row", "either"):
        parts = [part for each in event.result.parts for part in (each, *each.parts)]
        return any(id(each) in made for each in parts) or any(
            id(leaf) in made for each in parts for leaf in leaves(each) if leaf.op == "applied"
        )
    return False


def _moved(term: Term) -> Term:
    while term.op == "method" and term.name in _MOVES and term.parts:
        term = term.parts[0]
    return term


def _is_cut(given: Term, event: Event) -> bool:
    """Whether the loss leaves out some of the outputs: `logits[:, :-1]`."""
    for _ in range(30):
        if given is event.result:
            return False
        if given.op == "index":
            return True
        if given.op != "method" or not given.parts:
            return False
        given = given.parts[0]
    return True


def is_shifted(one: Term, other: Term, depth: int = 0) -> bool:
    """Whether two values are slices of the same, the second begins one later: `x[i:i + n]` and `x[i + 1:i + n + 1]`."""
    if one is other or depth > 20:
        return False
    if one.op == other.op == "index" and alike(one.parts[0], other.parts[0]):
        return _begins_later(one.parts[1], other.parts[1])
    if (one.op, one.name, len(one.parts)) != (other.op, other.name, len(other.parts)):
        return False
    pairs = list(zip(one.parts, other.parts, strict=True))
    return sum(is_shifted(left, right, depth + 1) for left, right in pairs) == 1 and all(
        alike(left, right) or is_shifted(left, right, depth + 1) for left, right in pairs
    )


def _begins_later(one: Term, other: Term) -> bool:
    if one.op == other.op == "row" and len(one.parts) == len(other.parts) and one.parts:
        first = all(alike(left, right) for left, right in zip(one.parts[:-1], other.parts[:-1], strict=True))
        return first and _begins_later(one.parts[-1], other.parts[-1])
    if one.op != "slice" or other.op != "slice":
        return False
    start, later = one.parts[0], other.parts[0]
    if later.op == "binary" and later.name == "Add" and number(later.parts[1]) == 1:
        return alike(later.parts[0], start)
    begins = 0.0 if start.op == "const" and start.data is None else number(start)
    return begins is not None and number(later) == begins + 1


def _attention(given: Term) -> list[tuple[Term, bool]]:
    """Each attention among what a value was computed from, and whether a mask acts on it."""
    found: list[tuple[Term, bool]] = []
    for each in leaves(given):
        if each.last == "scaled_dot_product_attention":
            found.append((each, bool({"is_causal", "attn_mask"} & each.keywords.keys()) or len(each.parts) > 3))
        elif each.op == "applied" and each.parts[0].op == "made" and each.parts[0].last in _LAYERS:
            found.append((each, bool(each.keywords) or len(each.parts) > _LAYERS[each.parts[0].last]))
        elif each.last == "softmax" and each.parts:
            scores = _scores(each.parts[0])
            if scores is not None:
                found.append((each, scores))
        elif each.op == "applied" and each.parts[0].last == "Softmax" and len(each.parts) > 1:
            scores = _scores(each.parts[1])
            if scores is not None:
                found.append((each, scores))
    return found


_LAYERS = {"TransformerEncoder": 2, "TransformerEncoderLayer": 2, "MultiheadAttention": 4}


def _scores(term: Term) -> bool | None:
    """Whether scores of queries and keys are masked; None of what are no such scores."""
    for _ in range(12):
        term = bare(term)
        if _is_product(term):
            return False
        if term.op == "binary" and term.name == "Div":
            term = term.parts[0]
        elif term.op == "binary" and term.name == "Mult":
            sides = [_is_product(bare(each)) for each in term.parts]
            term = term.parts[1] if sides == [False, True] else term.parts[0]
        else:
            return True if any(_is_product(each) for each in leaves(term)) else None
    return None


def _is_product(term: Term) -> bool:
    """`q @ k.transpose(-2, -1)`."""
    called = term.op in ("call", "method") and term.last in ("matmul", "bmm") and len(term.parts) == 2
    if not called and (term.op, term.name) != ("binary", "MatMult"):
        return False
    pair = term.parts
    return any(
        each.last in ("transpose", "permute", "t", "mT", "T")
        for each in pair
        if each.op in ("method", "attribute", "call")
    )


def _is_attention_masked(given: Term) -> bool:
    found = _attention(given)
    return bool(found) and all(masked for _, masked in found)


def _open_attention(given: Term) -> Term | None:
    found = _attention(given)
    return found[0][0] if found and not any(masked for _, masked in found) else None
