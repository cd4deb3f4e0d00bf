"""Next-token models that see what they have to predict: targets that are not shifted, attention without a mask."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import FUNCTIONS, Course
from stayfinite.readers.configs.course.models import trained
from stayfinite.readers.configs.course.picking import dataset_of, truth
from stayfinite.readers.configs.course.terms import (
    UNKNOWN,
    Event,
    Term,
    alike,
    bare,
    constant,
    leaves,
    number,
    stripped,
)
from stayfinite.readers.configs.judges.fault import Fault, seen_at
from stayfinite.readers.configs.judges.losses import learned_losses, loss_calls

_CAUSAL = lazy_regex(r"\btril\(|\btriu\(|is_causal ?= ?True|causal_mask|subsequent_mask")
_MOVES = frozenset({"view", "reshape", "flatten", "contiguous", "to", "long", "cuda", "clone"})


def leaks(course: Course) -> Iterator[Fault]:
    """Cross entropies of a next-token model that can look at the next token."""
    causal = _CAUSAL.search(course.code) is not None
    models = {id(each) for each in trained(course)}
    calls = [each for each in course.events if each.kind == "forward" and id(each.term) in models and each.given]
    for name, call, given, target in learned_losses(course):
        if name not in ("CrossEntropyLoss", "cross_entropy", "nll_loss", "NLLLoss"):
            continue
        made = {id(each) for each in leaves(given)}
        for event in calls:
            tokens, wanted = stripped(event.given[0], _MOVES), stripped(target, _MOVES)
            if not (id(event.result) in made or _holds(event, made)) or _is_cut(given, event):
                continue
            if causal and alike(tokens, wanted) and tokens.op != "const" and _is_attention_masked(given):
                text = f"the targets {target.shown} are the model's own inputs: shift them by one token"
                yield Fault("causal-leak", text, call.line)
                return
            if is_shifted(tokens, wanted):
                open_ones = _open_attention(given)
                if open_ones is not None:
                    text = f"{open_ones.shown} without a causal mask: the model sees the token that it predicts"
                    yield Fault("causal-leak", text, open_ones.line)
                    return


def _holds(event: Event, made: set[int]) -> bool:
    """Whether a part of what a forward returned is among these; a loss computed inside of it is."""
    if event.result.op in ("row", "either"):
        parts = [part for each in event.result.parts for part in (each, *each.parts)]
        return any(id(each) in made for each in parts) or any(
            id(leaf) in made for each in parts for leaf in leaves(each) if leaf.op == "applied"
        )
    return False


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


_RESHAPES = frozenset({
    "view", "reshape", "contiguous", "flatten", "transpose", "permute", "to", "cuda", "float", "long", "clone",
    "detach", "mT", "rearrange", "copy", "squeeze",
})  # fmt: skip
"""Methods that keep every value in its order."""
_MEANT = lazy_regex(
    r"auto_?encod|vae|elbo|recon|denois|diffus|corrupt|noise|mask(?!_?fill|ed_fill|\b)|\bmlm\b|codebook|quantiz|"
    r"bottleneck|copy_task|identity|bidirectional|\bbert", 2
)  # fmt: skip
"""Words of programs that are to give back what they get."""
_SHIFTS = lazy_regex(r"shift|roll\(|F\.pad\(|:, :-1|\.\.\., :-1|\[:, 1:|\[1:|\[:-1|\bbos|start_token|\bsos", 2)
_FIX = "shift by one: compare logits[:, :-1] with ids[:, 1:], or take y = data[i + 1:i + 1 + T] for x = data[i:i + T]"
_INPUTS = ("input_ids", "x", "idx", "ids", "tokens", "inputs", "input", "src")
_LABELS = lazy_regex(r"labels?|targets?|tgt|y")
_MODEL = lazy_regex(r"(?:self\.)?(?:\w*model|net|network|lm|gpt|transformer|rnn|lstm|decoder|m)")
_IN_A_ROW = lazy_regex(r"view\(-1|reshape\(-1|flatten|transpose|permute|mT\b|rearrange")


def copied_targets(course: Course) -> Iterator[Fault]:
    """Every cross entropy of a model's answer to its own target."""
    if _MEANT.search(course.code):
        return
    asked_by = {id(each.result): each.given for each in course.events if each.kind == "forward" and each.given}
    for name, call, logits, target in loss_calls(course):
        if name not in ("CrossEntropyLoss", "cross_entropy") or not isinstance(call.node, ast.Call):
            continue
        answer, label = _origin(logits, asked_by), _origin(target)
        asked = _asked(answer, asked_by.get(id(answer), ()))
        inside = [each for each in course.around(call.node) if isinstance(each, ast.ClassDef)]
        scope = next((each for each in course.around(call.node) if isinstance(each, FUNCTIONS)), None)
        shifts = any(_SHIFTS.search(ast.unparse(each)) for each in inside or _classes(course))
        if shifts or label.op == "const":
            continue
        if asked is not None and _same(_origin(asked), label):
            text = f"{ast.unparse(answer.node)[:60]} is compared with its own input"
            in_a_row = _IN_A_ROW.search(ast.unparse(call.node.args[0] if call.node.args else call.node)) is not None
            yield seen_at("target-out-of-step", text, call.node, sure=in_a_row, fix=_FIX)
        elif inside and scope is not None and scope.name == "forward":
            if any(_embeds(each, label) for each in leaves(logits)):
                text = "the labels are embedded as inputs, and nothing shifts them"
                yield seen_at("target-out-of-step", text, call.node, sure=False, fix=_FIX)
            elif label.op == "unknown" and _LABELS.fullmatch(label.name) and _copies(course, label.name):
                text = "the labels are a copy of the inputs, and nothing shifts them"
                yield seen_at("target-out-of-step", text, call.node, fix=_FIX)


def shifted_twice(course: Course) -> Iterator[Fault]:
    """`{"input_ids": flat[i:i + n], "labels": flat[i + 1:i + 1 + n]}` for a model that shifts labels itself."""
    code = course.code
    if not _SHIFTS_ITSELF.search(code) or not _TRAINER.search(code) or _OWN_LABELS.search(code):
        return
    for term in course.terms:
        inputs, labels = (term.attributes.get(each) for each in ("input_ids", "labels"))
        if term.op == "dict" and inputs is not None and labels is not None and is_shifted(inputs, labels):
            text = "the labels are shifted here, and the model shifts them again: it learns the token after next"
            yield Fault("target-out-of-step", text, term.line, fix='"labels": a copy of input_ids')
            return


_SHIFTS_ITSELF = lazy_regex(r"(?:ForCausalLM|LMHeadModel)\.from_")
_TRAINER = lazy_regex(r"(?<!\w)Trainer\(")
_OWN_LABELS = lazy_regex(r"DataCollatorFor|def forward|compute_loss|cross_entropy|CrossEntropy|shift_labels|nll_loss")


def _classes(course: Course) -> list[ast.ClassDef]:
    return [each for each in course.nodes if isinstance(each, ast.ClassDef)]


def _origin(term: Term, ends: Container[int] = ()) -> Term:
    """What a value was before it was reshaped, copied, and masked where it is padding; or one of these ``ends``."""
    for _ in range(20):
        shaped = term.op in ("method", "call") and term.last in _RESHAPES
        padded = term.op == "set" and number(term.parts[2]) == -100
        plain = shaped or padded or (term.op == "attribute" and term.name == "logits")
        if id(term) in ends or not plain or not term.parts:
            break
        term = term.parts[0]
    return term


def _asked(answer: Term, given: tuple[Term, ...]) -> Term | None:
    """What a model was asked; None of other values."""
    by_name = answer.op == "call" and _MODEL.fullmatch(answer.name)
    if not given and not by_name and answer.op != "applied":
        return None
    named = [answer.keywords[each] for each in _INPUTS if each in answer.keywords]
    places = answer.parts[1:] if answer.op == "applied" else answer.parts
    return next(iter((*given, *named, *places)), None)


def _same(one: Term, other: Term) -> bool:
    return one.op != "const" and (one is other or (one.op not in ("call", "applied") and alike(one, other)))


def _embeds(term: Term, label: Term) -> bool:
    """Whether a layer looks the labels up in an embedding."""
    layer = term.parts[0] if term.op == "applied" and len(term.parts) > 1 else None
    return layer is not None and layer.last == "Embedding" and _same(_origin(term.parts[1]), label)


def _copies(course: Course, label: str) -> bool:
    """Whether inputs are handed over as labels: `labels = input_ids.clone()`, `{"labels": ids, "input_ids": ids}`."""
    for term in course.terms:
        told = term.attributes if term.op == "dict" else term.keywords if _MODEL.fullmatch(term.name) else {}
        inputs = next((told[each] for each in _INPUTS if each in told), None)
        if label in told and inputs is not None and _same(_origin(inputs), _origin(told[label])):
            return True
        if term.op == "set" and constant(term.parts[1]) == label:
            value = _origin(term.parts[2])
            if value.op == "index" and constant(value.parts[1]) in _INPUTS:
                return True
    return False


def whole_again(course: Course) -> Iterator[Fault]:
    """`train, val = random_split(data, ...)`, and the shuffled loader gets `data` with all its rows."""
    loaders = [each for each in course.terms if each.op == "made" and each.last == "DataLoader"]
    given = {id(loader): dataset_of(loader) for loader in loaders}
    used = {id(part) for each in course.terms for part in (*each.parts, *each.keywords.values())}
    for split in course.terms:
        whole = split.given(0, "dataset") if split.op == "call" and split.last == "random_split" else None
        parts = [each for each in course.terms if each.op == "part" and each.parts[0] is split]
        if whole is None or not parts or id(parts[0]) in used or not any(id(each) in used for each in parts[1:]):
            continue
        measured = [each for each in loaders if any(given[id(each)] is part for part in parts[1:])]
        for loader in loaders if measured else ():
            if given[id(loader)] is whole and truth(loader.keywords.get("shuffle", UNKNOWN)) is True:
                text = (
                    "the shuffled loader gets the whole dataset, with its validation part; the training part is unused"
                )
                yield Fault(
                    "train-val-overlap", text, loader.line, fix="give the loader the training part of the split"
                )
