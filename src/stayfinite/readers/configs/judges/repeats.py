"""Training that sees the same rows again and again, or its classes one after the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.picking import truth
from stayfinite.readers.configs.course.terms import Term, bare, constant, leaves, number
from stayfinite.readers.configs.judges.losses import loss_calls
from stayfinite.readers.configs.loops import LoopFault


def same_batches(course: Course) -> Iterator[LoopFault]:
    """The first batch of a loader in its given order, or one slice, at each step."""
    reached = course.learned
    for _, call, given, target in loss_calls(course):
        if id(call) not in reached:
            continue
        for loader in _restarted(target):
            text = "next(iter(loader)) without shuffle gives the same first batch at each step"
            yield LoopFault("duplicate-rows", text, loader)
            return
        rows, labels = _one_slice(course, given), _one_slice(course, bare_rows(target))
        if rows is not None and labels is not None and not _others(target):
            yield LoopFault("duplicate-rows", f"{labels.shown} is the same rows at each step of the loop", labels.line)
            return


def _restarted(target: Term) -> Iterator[int]:
    """Lines of `next(iter(loader))` inside of a loop of steps, where the loader keeps its order.

    What a dataset of the script's own gives may be random.
    """
    for each in leaves(target):
        if (
            each.op != "batch"
            or each.name == "items"
            or not isinstance(each.node, ast.Call)
            or ast.unparse(each.node.func) != "next"
        ):
            continue
        inner = each.node.args[0]
        fresh = isinstance(inner, ast.Call) and ast.unparse(inner.func) == "iter"
        loader = each.parts[1]
        shuffle = loader.given(2, "shuffle")
        ordered = shuffle is None or truth(shuffle) is False
        plain = not {"sampler", "batch_sampler"} & loader.keywords.keys()
        if fresh and ordered and plain and each.passes and len(each.passes) > len(loader.passes):
            yield each.line


def bare_rows(term: Term) -> Term:
    """A value without moves and casts, but with its slices."""
    while term.op == "method" and term.name in ("to", "float", "long", "cuda", "cpu", "view", "squeeze", "unsqueeze"):
        term = term.parts[0]
    return term


def _one_slice(course: Course, term: Term) -> Term | None:
    """A slice with numbers for its ends, inside a loop over `range(a, b, step)` that no value depends on."""
    for each in leaves(term):
        key = each.parts[1] if each.op == "index" and len(each.parts) > 1 else None
        if key is None or key.op != "slice" or not each.passes or constant(key.parts[2]) is not None:
            continue
        start, stop = number(key.parts[0]) or 0.0, number(key.parts[1])
        loop = course.loops.get(each.passes[-1][0])
        if stop is None or stop <= start or not isinstance(loop, ast.For) or not _counts_rows(loop):
            continue
        names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        used = {node.id for one in loop.body for node in ast.walk(one) if isinstance(node, ast.Name)}
        if not names & used:
            return each
    return None


def _counts_rows(loop: ast.For) -> bool:
    """`for i in range(0, 512, 64)`."""
    return isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range" and len(loop.iter.args) == 3


def _others(target: Term) -> bool:
    return any(each.op in ("each", "batch") for each in leaves(target))


_OF_CLASSES = frozenset({"CrossEntropyLoss", "cross_entropy", "NLLLoss", "nll_loss", "BCELoss", "BCEWithLogitsLoss"})


def sorted_classes(course: Course) -> Iterator[LoopFault]:
    """A loader that keeps the order of rows which are sorted by class."""
    reached = course.learned
    for name, call, _, target in loss_calls(course):
        batch = next((each for each in leaves(target) if each.op == "batch"), None)
        if batch is None or id(call) not in reached or name not in _OF_CLASSES:
            continue
        loader = batch.parts[1]
        shuffle = loader.given(2, "shuffle")
        kept = shuffle is None or truth(shuffle) is False
        plain = not {"sampler", "batch_sampler", "collate_fn"} & loader.keywords.keys() and loader.parts[3:] == ()
        dataset = loader.given(0, "dataset")
        direct = dataset is not None and dataset.op in ("made", "instance") and dataset.last != "Subset"
        size = loader.given(1, "batch_size")
        few = size is None or (number(size) or 1e9) < 1_000
        if kept and plain and direct and few and is_sorted(batch.parts[0]) and _looped(batch):
            text = "the rows are sorted by class, and the loader does not shuffle: set shuffle=True"
            yield LoopFault("unshuffled", text, loader.line)
            return


def _looped(batch: Term) -> bool:
    return not (isinstance(batch.node, ast.Call) and ast.unparse(batch.node.func) == "next")


_MOVES = frozenset({"long", "float", "to", "clone", "int", "astype", "unsqueeze", "view"})
_MAKES = frozenset({"tensor", "from_numpy", "as_tensor", "LongTensor", "FloatTensor"})


def is_sorted(term: Term) -> bool:
    """Whether labels come class by class: `arange(4).repeat_interleave(160)`, `cat([zeros(n), ones(n)])`."""
    for _ in range(20):
        if not (term.op == "method" and term.name in _MOVES) and not (term.op == "call" and term.last in _MAKES):
            break
        term = term.parts[0]
    if term.op in ("method", "call") and term.last in ("repeat_interleave", "repeat"):
        counted = term.parts[0]
        np_repeat = term.name == "np.repeat" or term.last == "repeat_interleave"
        return np_repeat and counted.op == "call" and counted.last == "arange"
    if term.op == "call" and term.last in ("cat", "concatenate", "hstack", "concat") and term.parts:
        listed = term.parts[0]
        if listed.op == "row" and listed.data != "grown" and len(listed.parts) > 1:
            values = [_filled(each) for each in listed.parts]
            return (
                None not in values and values == sorted(values, key=lambda each: each or 0.0) and len(set(values)) > 1
            )
    return False


def _filled(term: Term) -> float | None:
    """The number that all elements are."""
    term = bare(term)
    if term.op == "call" and term.last in ("zeros", "ones"):
        return float(term.last == "ones")
    return number(term.given(1, "fill_value")) if term.op == "call" and term.last == "full" else None
