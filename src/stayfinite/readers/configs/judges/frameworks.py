"""What a framework is given to train with: the loss of a Lightning step, a model on several devices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import FUNCTIONS, Course
from stayfinite.readers.configs.course.terms import Event, Term, all_from
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.program import Program

_OWN_BACKWARD = lazy_regex(r"automatic_optimization|backward\(|super\(\)\.training_step")
_OWN_SYNC = lazy_regex(r"all_reduce|no_sync|register_comm_hook|(?<!convert)_sync_|average_gradients|reduce_gradients")


def returned_nothing(course: Course) -> Iterator[Fault]:
    """A training_step() that computes a loss and returns nothing, where Lightning runs backward on what it returns."""
    for owner in (each for each in course.defined if each.op == "class"):
        step = next((each for each in owner.node.body if getattr(each, "name", "") == "training_step"), None)
        if step is None or "LightningModule" not in {each.last for each in owner.parts}:
            continue
        inside = list(ast.walk(step))
        names = [each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        gives = any(isinstance(each, (ast.Yield, ast.Raise)) or getattr(each, "value", None) is not None
                    for each in inside if isinstance(each, (ast.Yield, ast.Raise, ast.Return)))  # fmt: skip
        if not gives and any("loss" in each for each in names) and not _OWN_BACKWARD.search(ast.unparse(owner.node)):
            text = "training_step() computes a loss and returns nothing: Lightning skips every step"
            yield Fault("step-missing", text, step.lineno, fix="return the loss")


def unsynchronized(program: Program) -> Iterator[Fault]:
    """A loss computed through `ddp.module`, so that no gradient is averaged over the ranks."""
    spread = program.course.spread
    if not spread or _OWN_SYNC.search(program.text):
        return
    for backward in (each for each in program.course.events if each.kind == "backward"):
        behind = list(all_from([backward.term]))
        ids = {id(each) for each in behind}
        forwards = [each for each in program.course.events if id(each.term) in spread and _goes_into(each, ids)]
        inner = [each for each in forwards if _through_module(program.course, each.result, each.node) and each.learns]
        if inner and len(inner) == len(forwards):
            called = ast.unparse(inner[0].node.func)
            text = f"{called}() goes around DistributedDataParallel: ranks train on their own gradients"
            yield Fault("rank-desync", text, inner[0].node.lineno, fix="call the wrapped model itself")
            return


def _goes_into(event: Event, ids: set[int]) -> bool:
    results = event.result.parts if event.result.op == "row" else (event.result,)
    called = event.kind in ("forward", "called", "foreign") and event.result.op != "const"
    return called and any(id(each) in ids for each in (event.result, *results))


def _through_module(course: Course, result: Term, node: ast.AST) -> bool:
    """Whether the call is of `ddp.module`, of a name that it was given, or of one of its methods."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Name):
        return _is_named_module(course, function)
    owner = function.value if isinstance(function, ast.Attribute) else None
    inside = isinstance(owner, ast.Attribute) and owner.attr == "module" and result.op in ("method", "applied")
    return inside or (isinstance(function, ast.Attribute) and function.attr == "module")


def _is_named_module(course: Course, function: ast.Name) -> bool:
    """`inner = net.module if isinstance(net, DDP) else net`, where the function sets the name nowhere else."""
    scope = next((each for each in course.around(function) if isinstance(each, FUNCTIONS)), course.tree)
    inside = list(ast.walk(scope))
    stores = [each for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    given = [each for each in inside if isinstance(each, ast.Assign) and len(each.targets) == 1]
    values = [each.value for each in given if getattr(each.targets[0], "id", "") == function.id]
    if len(values) != 1 or sum(each.id == function.id for each in stores) != 1:
        return False
    value = values[0]
    if isinstance(value, ast.IfExp) and ast.unparse(value.test).startswith(("isinstance(", "hasattr(")):
        value = value.body
    return isinstance(value, ast.Attribute) and value.attr == "module"
