"""In which mode a model learns and is measured: evaluation mode that stays on, or that is never switched on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import calls_of, changing_layers, trained
from stayfinite.readers.configs.course.state import Event
from stayfinite.readers.configs.course.terms import Term, leaves
from stayfinite.readers.configs.loops import LoopFault

_ON_PURPOSE = lazy_regex(
    r"monte|mc_?drop|uncertain|bayes|adversar|attack|pgd|fgsm|\.grad\.(?:data\.)?sign|saliency|register_forward|"
    r"autograd\.grad\(\w*out|pretrained|from_pretrained|load_state_dict|torch\.load|hub\.load|freeze|frozen|momentum_enc|"
    r"torchvision\.models|update_bn|\.training\b(?! *(?:=|,|\)))|set_mode|train_mode|eval_mode", 2,
)  # fmt: skip
EVAL, TRAIN = frozenset({"eval"}), frozenset({"train"})


def wrong_modes(course: Course) -> Iterator[LoopFault]:
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
    own = {node.name for node in ast.walk(course.tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return isinstance(call.func, ast.Attribute) and call.func.attr not in own


def _reaches(event: Event, reached: set[int]) -> bool:
    results = event.result.parts if event.result.op == "row" else (event.result,)
    return any(id(each) in reached for each in (event.result, *results))


def _learns_in_evaluation(course: Course, model: Term, calls: list[Event], layers: str) -> Iterator[LoopFault]:
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
    yield LoopFault("wrong-mode", text, off.node.lineno)


def _never_evaluates(
    course: Course, calls: list[Event], learning: list[Event], reached: set[int], layers: str
) -> Iterator[LoopFault]:
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
            yield LoopFault("wrong-mode", text, event.node.lineno)
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
