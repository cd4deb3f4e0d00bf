"""How a model is measured: in which mode, and with sums that epochs reset and counts that fit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import FUNCTIONS, Course
from stayfinite.readers.configs.course.models import calls_of, changing_layers, trained
from stayfinite.readers.configs.course.picking import dataset_of
from stayfinite.readers.configs.course.terms import Event, Passes, Term, leaves, number, stripped
from stayfinite.readers.configs.judges.fault import Fault

_ON_PURPOSE = lazy_regex(
    r"monte|mc_?drop|uncertain|bayes|adversar|attack|pgd|fgsm|\.grad\.(?:data\.)?sign|saliency|register_forward|"
    r"autograd\.grad\(\w*out|pretrained|from_pretrained|load_state_dict|torch\.load|hub\.load|freeze|frozen|momentum_enc|"
    r"torchvision\.models|update_bn|\.training\b(?! *(?:=|,|\)))|set_mode|train_mode|eval_mode", 2,
)  # fmt: skip
EVAL, TRAIN = frozenset({"eval"}), frozenset({"train"})


def wrong_modes(course: Course) -> Iterator[Fault]:
    """A model that learns in evaluation mode, or is measured in training mode."""
    text = course.code
    switches = [each.node for each in course.events if each.kind == "switch"]
    known = {id(each) for each in switches}
    hidden = [each for each in calls_of(course, "eval", "train") if id(each) not in known and _may_switch(course, each)]
    if hidden or _ON_PURPOSE.search(text):
        return
    reached = course.learned
    for model in trained(course):
        if model.op not in ("instance", "made"):
            continue
        layers = changing_layers(course, model)
        calls = [each for each in course.events if each.kind == "forward" and each.term is model]
        if layers:
            learning = [each for each in calls if each.learns and _reaches(each, reached)]
            yield from _learns_in_evaluation(course, model, learning, layers)
            yield from _never_evaluates(course, calls, learning, reached, layers)


def _may_switch(course: Course, call: ast.Call) -> bool:
    """Whether a call that was not followed could switch a model's mode."""
    own = {node.name for node in course.nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    function = next((each for each in course.around(call) if isinstance(each, FUNCTIONS)), None)
    if function is not None and function not in course.followed:
        names = (getattr(each, "id", getattr(each, "attr", "")) for each in course.nodes)
        if function.name not in names:
            return False  # nobody calls it
    return isinstance(call.func, ast.Attribute) and call.func.attr not in own


def _reaches(event: Event, reached: set[int]) -> bool:
    results = event.result.parts if event.result.op == "row" else (event.result,)
    return any(id(each) in reached for each in (event.result, *results))


def _learns_in_evaluation(course: Course, model: Term, calls: list[Event], layers: str) -> Iterator[Fault]:
    late = [each for each in calls if each.passes and each.passes[0][1]]
    switches = [each for each in course.events if each.kind == "switch" and each.term is model]
    off = next((each for each in switches if "eval" in each.result.data), None)
    if not late or off is None or any("eval" not in each.mode for each in late):
        return
    within = {each.passes[0][0] for each in late}
    back = any("train" in each.result.data and each.passes and each.passes[0][0] in within for each in switches)
    if back and any(each.mode != EVAL for each in late):
        return
    first = all(each.mode == EVAL for each in calls)
    words = "before the training" if first else "and model.train() is not called again"
    text = f"model.eval() is called {words}: {layers} no longer acts as in training"
    yield Fault("wrong-mode", text, off.node.lineno)


def _never_evaluates(
    course: Course, calls: list[Event], learning: list[Event], reached: set[int], layers: str
) -> Iterator[Fault]:
    """Measured against targets, without gradients, always in training mode; no model is ever switched."""
    measured = [each for each in calls if not each.learns and not _reaches(each, reached)]
    if not learning or not measured or any(each.mode != TRAIN for each in measured):
        return
    if any(True for _ in calls_of(course, "eval")) or any(
        "train(False" in ast.unparse(e) for e in calls_of(course, "train")
    ):
        return
    batches = {id(part) for each in learning for part in _inputs(each)}
    for event in measured:
        if not any(id(part) in batches for part in _inputs(event)) and _is_scored(course, event):
            text = f"model.eval() is never called: the model is measured with {layers} as in training"
            yield Fault("wrong-mode", text, event.node.lineno)
            return


def _inputs(event: Event) -> list[Term]:
    """The batches that went into a forward."""
    return [each for each in leaves(event.result) if each.op == "batch" or (each.op == "each" and each.name != "count")]


_SCORES = lazy_regex(r"\w*(?:Loss|Accuracy|loss|entropy|accuracy)\w*|eq|l1|mse|score")


def _is_scored(course: Course, event: Event) -> bool:
    """Whether a result is compared with something, or goes into a loss."""
    results = {id(event.result), *(id(each) for each in event.result.parts if event.result.op == "row")}
    for each in course.terms:
        scores = (each.op == "compare" and each.name in ("Eq", "NotEq")) or (
            each.op in ("call", "applied", "method") and _SCORES.fullmatch(each.last) is not None
        )
        if scores and any(id(part) in results for part in leaves(each)):
            return True
    return False


class Sum(NamedTuple):
    """A running sum: what was added, in which passes, and what it began with."""

    added: tuple[Term, ...]
    passes: tuple[Passes, ...]
    start: Term

    def spans(self, loop: int) -> bool:
        """Whether both passes of a loop added to it."""
        return {(loop, 0), (loop, 1)} <= {each for passes in self.passes for each in passes}


def wrong_sums(course: Course) -> Iterator[Fault]:
    """Metrics that grow from epoch to epoch, or that are fractions of the wrong number."""
    numerators = {id(each.parts[0]) for each in course.terms if _divides(each)}
    told: set[int] = set()
    for term in course.terms:
        if not _divides(term) or id(term) in numerators or term.line in told:
            continue
        value, divisors = _fraction(term)
        total = sum_of(value)
        if total is None:
            continue
        for fault in (_never_reset(term, total, divisors), _by_batches(total, divisors, term)):
            if fault is not None:
                told.add(term.line)
                yield fault
                break


def _divides(term: Term) -> bool:
    return term.op == "binary" and term.name == "Div"


def _fraction(term: Term) -> tuple[Term, list[Term]]:
    """`100 * a / b / c` as `a` and all that it is divided by."""
    divisors: list[Term] = []
    while True:
        if _divides(term):
            divisors.append(term.parts[1])
            term = term.parts[0]
        elif term.op == "binary" and term.name == "Mult" and any(number(each) is not None for each in term.parts):
            term = next((each for each in term.parts if number(each) is None), term.parts[0])
        elif term.op == "method" and term.name in ("item", "float", "cpu", "numpy", "double") and term.parts:
            term = term.parts[0]
        else:
            return term, divisors


def sum_of(term: Term) -> Sum | None:
    """A sum that began with a number; None of everything else."""
    added: list[Term] = []
    passes: list[Passes] = []
    for _ in range(200):
        if term.op == "either":
            # `if ok: total += x`: the sum, or the same sum before.
            longer = [each for each in term.parts if each.op == "binary" and each.data == "more"]
            if not longer or any(each not in [inner for one in longer for inner in leaves(one)] for each in term.parts):
                return None
            term = longer[-1]
        elif term.op == "binary" and term.name == "Add" and (term.data == "more" or added):
            added.append(term.parts[1])
            passes.append(term.passes)
            term = term.parts[0]
        else:
            break
    if not added or number(term) is None:
        return None
    return Sum(tuple(added), tuple(passes), term)


def _never_reset(term: Term, total: Sum, divisors: list[Term]) -> Fault | None:
    """Divided by one epoch's count, though it holds those of all epochs."""
    for depth, (loop, place) in enumerate(term.passes):
        if not place or not total.spans(loop) or not _is_plain(divisors, loop):
            continue
        inner = all(len(each) > depth + 1 for each in total.passes)
        if inner and len(term.passes) == depth + 1:
            text = f"{term.shown}: the sum is never set back to 0 and grows from epoch to epoch"
            return Fault("metric-not-reset", text, term.line, mild=True)
    return None


def _is_plain(divisors: list[Term], loop: int) -> bool:
    """Whether what it is divided by is the same in every pass: a number, a length, a count of this pass."""
    for each in divisors:
        count = sum_of(each)
        if count is not None:
            if count.spans(loop):
                return False
            continue
        for part in leaves(each):
            if part.op == "call" and part.last == "len" and part.parts and part.parts[0].data != "grown":
                continue
            of_the_loop = part.op == "each" and any(at[0] == loop for at in part.passes)
            if of_the_loop or part.op in ("unknown", "either", "text") or part.last in ("time", "perf_counter"):
                return False
    return all(number(each) is not None or _is_length(each) or sum_of(each) for each in divisors)


def _is_length(term: Term) -> bool:
    if term.op == "binary":
        return all(_is_length(each) or number(each) is not None for each in term.parts)
    return term.op == "call" and term.last == "len"


def _by_batches(total: Sum, divisors: list[Term], term: Term) -> Fault | None:
    """Right answers counted row by row, divided by the number of batches."""
    if len(divisors) != 1 or not all(_counts_matches(each) for each in total.added):
        return None
    divisor = divisors[0]
    count = sum_of(divisor)
    by_loader = _is_length(divisor) and divisor.op == "call" and divisor.parts and _has_batches(divisor.parts[0])
    by_count = (
        count is not None
        and all(number(each) == 1 for each in count.added)
        and {each[-1:] for each in count.passes} == {each[-1:] for each in total.passes}
        and all(_batched(each) for each in total.added)
    )
    if by_loader or by_count:
        text = "right answers are counted by row and divided by the number of batches: the share can exceed 1"
        return Fault("metric-impossible", text, term.line, mild=True)
    return None


def _counts_matches(term: Term) -> bool:
    """`(pred == target).sum().item()`: a number of rows."""
    term = stripped(term, ("item", "float", "int", "cpu", "numpy", "detach", "double"), ("int", "float"))
    if term.op != "method" or term.name != "sum" or len(term.parts) > 1 or term.keywords:
        return False
    inner = stripped(term.parts[0], ("float", "int", "long", "double", "cpu", "type"))
    return (inner.op == "compare" and inner.name == "Eq") or (inner.op == "method" and inner.name == "eq")


def _has_batches(loader: Term) -> bool:
    """Whether a value is a loader of batches of more than one row."""
    if loader.op != "made" or loader.last != "DataLoader" or dataset_of(loader) is None:
        return False
    size = loader.given(1, "batch_size")
    return size is not None and number(size) != 1 and size.op != "each"


def _batched(term: Term) -> bool:
    return any(each.op == "batch" and _has_batches(each.parts[1]) for each in leaves(term))
