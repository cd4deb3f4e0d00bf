"""Formulas with a wrong sign, factor or mask: KL divergence, entropy, attention, temperature, distances of pairs."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from itertools import chain

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import is_learned, number_of
from stayfinite.readers.configs.course.terms import Term, alike, bare, constant, leaves, number, stripped
from stayfinite.readers.configs.judges.fault import Fault

_PRODUCTS = frozenset({"matmul", "bmm", "mm", "einsum"})
_LARGEST_EXPONENT = 88.7
"""exp() of more overflows fp32."""
_NORMED = lazy_regex(r"normali[sz]e\(|\b(?:qk|q|k)_?norm|norm_?[qk]\b|l2norm|cosine|\.norm\(|linalg", re.IGNORECASE)
_MASK = lazy_regex(r"(?:.*\.)?attention_mask|.*\[['\"]attention_mask['\"]\]")
_TOKENIZED = lazy_regex(r"[Tt]okenizer|transformers")
_MASKS = frozenset({"src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "key_padding_mask"})


def wrong_formulas(course: Course) -> Iterator[Fault]:
    """Each of them once a line."""
    told: set[tuple[str, int]] = set()
    looks = (
        _rewarded_divergence,
        _punished_entropy,
        _sharpened_attention,
        _inverted_masks,
        _overflowing,
        _of_pairs,
        _cut_answers,
    )
    for fault in chain.from_iterable(look(course) for look in looks):
        if (fault.cause, fault.line) not in told:
            told.add((fault.cause, fault.line))
            yield fault


def addends(course: Course, term: Term, sign: int = 1, depth: int = 0) -> Iterator[tuple[int, Term, Term | None]]:
    """``(sign, addend, factor)`` of a sum, through means, sums and factors; the factor only where it is no number."""
    parts, name = term.parts, term.name
    if depth > 30:
        return
    if (term.op, name) == ("unary", "USub"):
        yield from addends(course, parts[0], -sign, depth + 1)
    elif term.op == "binary" and name in ("Add", "Sub"):
        yield from addends(course, parts[0], sign, depth + 1)
        yield from addends(course, parts[1], sign if name == "Add" else -sign, depth + 1)
    elif term.op == "binary" and name in ("Mult", "Div") and not all(map(is_learned, parts)):
        value, factor = parts if name == "Div" or is_learned(parts[0]) else parts[::-1]
        minus = (factor.op, factor.name) == ("unary", "USub") or (number_of(course, factor) or 1.0) < 0
        for way, each, inner in addends(course, value, -sign if minus else sign, depth + 1):
            yield way, each, inner or (factor if number(factor) is None else None)
    elif term.op in ("method", "call") and term.last in ("mean", "sum") and parts:
        yield from addends(course, parts[0], sign, depth + 1)
    elif term.op == "method" and name == "scale" and len(parts) > 1:
        yield from addends(course, parts[1], sign, depth + 1)
    else:
        yield sign, term, None


def _losses(course: Course) -> Iterator[Term]:
    yield from (each.term for each in course.events if each.kind == "backward")


def _rewarded_divergence(course: Course) -> Iterator[Fault]:
    """`loss = bce + 0.5 * sum(1 + logvar - mu ** 2 - logvar.exp())`, which is minus the divergence."""
    for loss in _losses(course):
        found = list(addends(course, loss))
        for sign, grown, _ in found:
            if sign > 0 or grown.last != "exp" or not grown.parts:
                continue
            turned = any(way > 0 and alike(each, grown.parts[0]) for way, each, _ in found)
            squared = any(way < 0 and _is_square(each) for way, each, _ in found)
            if turned and squared and any(way > 0 and number(each) == 1 for way, each, _ in found):
                text = "the KL term has no minus: training makes the divergence larger"
                yield Fault("flipped-sign", text, grown.line, fix="-0.5 * sum(1 + logvar - mu ** 2 - logvar.exp())")


def _is_square(term: Term) -> bool:
    if term.op in ("method", "call") and term.last in ("pow", "square"):
        return term.last == "square" or (len(term.parts) > 1 and number(term.parts[1]) == 2)
    power = term.op == "binary" and term.name == "Pow" and number(term.parts[1]) == 2
    return power or ((term.op, term.name) == ("binary", "Mult") and alike(term.parts[0], term.parts[1]))


def _punished_entropy(course: Course) -> Iterator[Fault]:
    """`policy_loss + coefficient * entropy.mean()`: the policy is made certain."""
    if "maximize" in course.code:
        return
    for loss in _losses(course):
        policy = any(each.last == "log_prob" for each in leaves(loss))
        for sign, each, factor in addends(course, loss) if policy else ():
            named = ast.unparse(factor.node).rpartition(".")[2] if factor is not None and factor.node else ""
            negative = named and re.search(rf"\b{re.escape(named)}\b[^=\n]*=\s*-|{re.escape(named)}.*-\d", course.code)
            if sign > 0 and bare(each).op == "method" and bare(each).name == "entropy" and not negative:
                text = "the entropy is added to the policy's loss: training makes the policy certain"
                yield Fault(
                    "flipped-sign", text, loss.line, fix="subtract it: loss = policy_loss - coefficient * entropy"
                )


def _sharpened_attention(course: Course) -> Iterator[Fault]:
    """`(q @ k.transpose(-2, -1)) * math.sqrt(d)`, on its way to a softmax."""
    if _NORMED.search(course.code):
        return
    soft = [each for each in course.terms if each.last == "softmax" and each.op in ("call", "method")]
    for term in course.terms if soft else ():
        if (term.op, term.name) != ("binary", "Mult"):
            continue
        for scores, factor in (term.parts, term.parts[::-1]):
            if _is_root(factor) and _of_queries(scores) and any(term in leaves(each) for each in soft):
                text = f"{term.shown} multiplies attention scores by a root: they have to be divided by it"
                yield Fault(
                    "attention-unscaled", text, term.line, fix="divide by sqrt(d), or scaled_dot_product_attention"
                )


def _is_root(term: Term) -> bool:
    if term.op == "call":
        return term.last == "sqrt"
    return (term.op, term.name) == ("binary", "Pow") and number(term.parts[1]) == 0.5


def _of_queries(term: Term) -> bool:
    """Whether it is `q @ k.transpose(-2, -1)`."""
    product = (term.op, term.name) == ("binary", "MatMult") or (term.op == "call" and term.last in _PRODUCTS)
    return product and len(term.parts) > 1 and _is_turned(term.parts[-1])


def _is_turned(term: Term) -> bool:
    return term.last in ("transpose", "t", "T", "mT", "permute", "swapaxes")


def _inverted_masks(course: Course) -> Iterator[Fault]:
    """`src_key_padding_mask=attention_mask.bool()`: True means there that a token is ignored."""
    tokens = _TOKENIZED.search(course.code) is not None
    for term in course.terms:
        layer = term.parts[0] if term.op == "applied" else None
        if layer is None or not layer.last.startswith(("Transformer", "MultiheadAttention")) or layer.op != "made":
            continue
        for name in term.keywords.keys() & _MASKS:
            mask = term.keywords[name]
            kept = tokens and _as_switch(mask) is not None
            below = not kept and _is_below_length(_given_by_collate(course, mask))
            if (kept or below) and layer.name.startswith(("nn.", "torch.nn.")):
                text = f"{name} is True for the tokens to ignore, and gets True for the real ones"
                fix = f"{name}=attention_mask == 0" if kept else f"{name}=~mask"
                yield Fault("attention-fully-masked-row", text, (term if below else mask).line or term.line, fix=fix)


_CASTS = frozenset({"to", "cuda", "cpu", "bool"})


def _given_by_collate(course: Course, mask: Term) -> Term:
    """What a function that collates rows returned, for a part of a batch; everything else as it is."""
    mask = stripped(mask, _CASTS)
    loader = mask.parts[0].parts[0] if mask.op == "part" and mask.parts[0].op == "each" else None
    collate = loader.given(-1, "collate_fn") if loader is not None and loader.last == "DataLoader" else None
    results = course.returned.get(collate.node, []) if collate is not None and collate.op == "function" else []
    rows = {id(each): each for each in results}
    row = next(iter(rows.values())) if len(rows) == 1 else mask
    known = row.op == "row" and row.data != "grown" and mask.data in range(len(row.parts))
    return stripped(row.parts[mask.data], _CASTS) if known else mask


def _is_below_length(mask: Term) -> bool:
    """`torch.arange(n)[None] < torch.tensor([len(row) for row in rows])[:, None]`, True for what is no padding."""
    if mask.op != "compare" or mask.name not in ("Lt", "Gt") or len(mask.parts) != 2:
        return False
    places, lengths = (bare(each) for each in (mask.parts if mask.name == "Lt" else mask.parts[::-1]))
    listed = lengths.parts[0] if lengths.op == "call" and lengths.last in _MAKERS and lengths.parts else None
    counted = listed is not None and listed.op == "row" and bool(listed.parts)
    return (
        places.op == "call" and places.last == "arange" and len(places.parts) == 1
        and counted and listed is not None and all((each.op, each.name) == ("call", "len") for each in listed.parts)
    )  # fmt: skip


_MAKERS = frozenset({"tensor", "as_tensor", "LongTensor"})


def _as_switch(mask: Term) -> Term | None:
    """The tokenizer's `attention_mask`, where a mask is True for what it keeps."""
    inner = mask.parts[0] if mask.parts else None
    if inner is None or inner.op in ("compare", "unary", "binary", "call") or not isinstance(inner.node, ast.AST):
        return None
    cast = mask.op == "method" and (mask.name == "bool" or (mask.name == "to" and "torch.bool" in mask.shown))
    asked = constant(mask.parts[1]) if mask.op == "compare" and len(mask.parts) == 2 else None
    kept = (mask.name, asked) in (("Eq", 1), ("NotEq", 0), ("Gt", 0)) and asked is not None
    written = getattr(getattr(mask.node, "func", None), "value", None) if cast else getattr(mask.node, "left", None)
    named = isinstance(written, ast.expr) and _MASK.fullmatch(ast.unparse(written)) is not None
    return inner if (cast or kept) and named else None


def _overflowing(course: Course) -> Iterator[Fault]:
    """`torch.exp(cosine / 0.005)`: exp(200) is infinite in fp32."""
    for term in course.terms:
        inside = term.parts[0] if term.op in ("call", "method") and term.last == "exp" and term.parts else None
        if inside is None or inside.op != "binary" or inside.name not in ("Div", "Mult"):
            continue
        value, factor = inside.parts if number_of(course, inside.parts[1]) else inside.parts[::-1]
        known = number_of(course, factor)
        if not known or known < 0 or (inside.name == "Div" and factor is not inside.parts[1]):
            continue
        largest = 1 / known if inside.name == "Div" else known
        if largest > _LARGEST_EXPONENT and _is_cosine(value) and id(term) in course.learned:
            text = f"{term.shown[:50]}: exp({math.floor(largest):g}) overflows where two vectors agree"
            yield Fault("naive-exp", text, term.line, fix="F.cross_entropy(similarity / temperature, labels)")


def _is_cosine(term: Term) -> bool:
    """Whether a value reaches 1 and never exceeds it: of normalized vectors."""
    if term.last in ("cosine_similarity", "CosineSimilarity"):
        return True
    product = (term.op, term.name) == ("binary", "MatMult") or (term.op == "call" and term.last in ("matmul", "mm"))
    sides = [bare(each.parts[0]) if _is_turned(each) and each.parts else bare(each) for each in term.parts]
    return product and all(each.op == "call" and each.last == "normalize" for each in sides)


def _of_pairs(course: Course) -> Iterator[Fault]:
    """The root of squared distances between all rows of the same values: 0 on the diagonal."""
    for term in course.terms:
        rooted = term.op in ("call", "method") and term.last == "sqrt" and bool(term.parts)
        inside = term.parts[0] if rooted or _is_root(term) else None
        if inside is None or id(term) not in course.learned or not is_learned(term):
            continue
        floor = inside.given(1 if inside.op == "call" else 0, "min") if inside.last in ("clamp", "clip") else None
        if inside.last in ("clamp", "clip", "relu", "clamp_min") and inside.parts:
            if inside.last != "relu" and (floor is None or number(floor) != 0):
                continue
            inside = inside.parts[0]
        if _is_distance(inside):
            text = f"{term.shown[:60]} is the root of 0 on the diagonal: its gradient is NaN"
            yield Fault(
                "loss-formula-singularity", text, term.line, fix="add an eps inside the root: (d2 + 1e-12).sqrt()"
            )


def _is_distance(term: Term) -> bool:
    """`a[:, None] + a[None] - 2 * x @ x.t()`, or the sum of `(x[:, None] - x[None]) ** 2`, with nothing added."""
    if term.op in ("method", "call") and term.last == "sum" and _is_square(term.parts[0]):
        inner = term.parts[0].parts[0]
        sides = inner.parts if (inner.op, inner.name) == ("binary", "Sub") else ()
        return bool(sides) and all(map(_is_stood, sides)) and bare(sides[0]) is bare(sides[1])
    if term.op != "binary" or term.name not in ("Add", "Sub"):
        return False
    parts = list(_summed(term))
    same = [each for each in parts if _is_product_with_itself(each)]
    rest = [each for each in parts if each not in same]
    plain = all(each.op in ("index", "method") and _is_stood(each) for each in rest)
    return len(same) == 1 and len(rest) == 2 and plain and bare(rest[0]) is bare(rest[1])


def _summed(term: Term) -> Iterator[Term]:
    if term.op == "binary" and term.name in ("Add", "Sub"):
        for each in term.parts:
            yield from _summed(each)
    else:
        yield term


def _is_product_with_itself(term: Term) -> bool:
    while (term.op, term.name) == ("binary", "Mult") and any(number(each) is not None for each in term.parts):
        term = next((each for each in term.parts if number(each) is None), term.parts[0])
    if (term.op, term.name) != ("binary", "MatMult") or not _is_turned(term.parts[1]):
        return False
    left, right = term.parts[0], bare(term.parts[1])
    while (left.op, left.name) == ("binary", "Mult") and any(number(each) is not None for each in left.parts):
        left = next(each for each in left.parts if number(each) is None)
    return bare(left) is right


def _is_stood(term: Term) -> bool:
    return term.last == "unsqueeze" or "None" in term.shown


def _cut_answers(course: Course) -> Iterator[Fault]:
    """`([-100] * len(prompt["input_ids"]) + answer)[:n]`, where the prompt was padded to n."""
    for term in course.terms:
        if (
            term.op != "index"
            or term.parts[1].op != "slice"
            or (term.parts[0].op, term.parts[0].name) != ("binary", "Add")
        ):
            continue
        masked, end = term.parts[0].parts[0], number(term.parts[1].parts[1])
        if (masked.op, masked.name) != ("binary", "Mult"):
            continue
        row, count = masked.parts
        asked = count.parts[0] if count.op == "call" and count.name == "len" and count.parts else None
        if asked is None or [number(each) for each in row.parts] != [-100] or row.op != "row":
            continue
        prompt = asked.parts[0] if asked.op == "index" else asked
        padded = constant(prompt.keywords.get("padding")) == "max_length"
        if padded and end is not None and number(prompt.keywords.get("max_length", masked)) == end:
            text = f"the prompt is padded to {end:g} tokens already: every label left is -100"
            yield Fault("all-labels-masked", text, term.line, fix="pad after the answer is appended")
