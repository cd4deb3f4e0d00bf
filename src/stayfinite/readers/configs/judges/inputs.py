"""Inputs that cannot be learned from: values that the script itself makes NaN, rows that are taken for time steps."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.terms import VALUES_KEPT, Term, constant, leaves, number
from stayfinite.readers.configs.judges.losses import loss_calls
from stayfinite.readers.configs.loops import LoopFault

_CLEANED = lazy_regex(r"nan_to_num|isnan|isfinite|isinf|nanmean|fillna|dropna|nan_?mask|np\.ma\b|(\b\w+) [!=]= \1\b")


def not_finite(course: Course) -> Iterator[LoopFault]:
    """`x[3] = float("nan")` in data that are learned from, and nothing takes it out again."""
    if _CLEANED.search(course.code):
        return
    reached = course.learned
    given = [one for each in course.events if each.kind == "forward" for one in each.given]
    given += [target for _, _, _, target in loss_calls(course)]
    plain = {id(part) for each in given for part in _rows(each)}
    for term in course.terms:
        if term.op == "set" and id(term) in reached and not term.passes:
            word = _word(term.parts[2])
            # Infinity keeps a value out of a minimum, too.
            if word and _is_data(term.parts[0]) and (word == "NaN" or id(term) in plain):
                yield LoopFault("bad-data-row", f"{term.shown} is set to {word}, and the training reads it", term.line)
                return


def _rows(term: Term) -> Iterator[Term]:
    """A value, and what it consists of: the rows that it was picked from, before they were moved or written to."""
    for _ in range(40):
        yield term
        moved = term.op == "method" and term.name in _MOVED
        made = term.op == "call" and term.last in _MADE
        scaled = term.op == "binary" and number(term.parts[1]) is not None
        if not (moved or made or scaled or term.op in ("batch", "index", "set", "row")) or not term.parts:
            return
        term = term.parts[0]


_MOVED = VALUES_KEPT | {"unfold", "astype"}
_MADE = frozenset({"tensor", "from_numpy", "as_tensor", "FloatTensor", "array", "stack", "cat", "concatenate"})


def _word(value: Term) -> str:
    """`nan` or `inf`, where a value is one of them; minus infinity masks on purpose."""
    if value.op == "call" and value.name == "float" and value.parts:
        text = str(constant(value.parts[0])).lower()
        return {"nan": "NaN", "inf": "inf", "infinity": "inf"}.get(text, "")
    return {"np.nan": "NaN", "torch.nan": "NaN", "math.nan": "NaN", "np.inf": "inf", "torch.inf": "inf",
            "math.inf": "inf"}.get(value.name if value.op == "library" else "", "")  # fmt: skip


def _is_data(term: Term) -> bool:
    """Whether values are made or loaded: a matrix of zeros or of distances holds infinity on purpose."""
    while term.op == "set":
        term = term.parts[0]
    return not (term.op == "call" and term.last in ("zeros", "ones", "full", "empty", "eye", "zeros_like", "full_like"))


def axes_taken_for_others(course: Course) -> Iterator[LoopFault]:
    """A recurrent layer that takes the batch for the time, where the last step is read as if it did not."""
    reached = course.learned
    for term in course.terms:
        if term.op != "index" or id(term) not in reached or not _last_step(term.parts[1]):
            continue
        output = term.parts[0]
        call = output.parts[0] if output.op == "part" and output.data == 0 else None
        layer = call.parts[0] if call is not None and call.op == "applied" else None
        if call is None or layer is None or layer.op != "made" or layer.last not in ("LSTM", "GRU", "RNN"):
            continue
        if "batch_first" not in layer.keywords and len(layer.parts) < 5 and _is_batch(call.parts[1]):
            text = f"{layer.shown} without batch_first takes the rows for time steps: rows of a batch see each other"
            yield LoopFault("samples-leak", text, layer.line)
            return


def _last_step(key: Term) -> bool:
    """`[:, -1]`."""
    if key.op != "row" or len(key.parts) < 2 or key.parts[0].op != "slice" or constant(key.parts[1]) != -1:
        return False
    return all(constant(each) is None and each.op == "const" for each in key.parts[0].parts)


def _is_batch(term: Term) -> bool:
    """Whether the first axis of a value is that of the rows of a loader."""
    for _ in range(20):
        if term.op == "batch":
            return True
        if term.op == "index" and term.parts[1].op in ("index", "call") and term.passes:
            return any(each.last in {"randperm", "permutation"} for each in leaves(term.parts[1]))
        if (
            term.op == "applied"
            and term.parts[0].op == "made"
            and term.parts[0].last in ("Embedding", "Dropout", "Linear")
        ):
            term = term.parts[1]
        elif term.op == "method" and term.name in ("to", "float", "cuda") and term.parts:
            term = term.parts[0]
        else:
            return False
    return False
