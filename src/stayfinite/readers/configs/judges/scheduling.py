"""Schedules built in epochs and stepped in each batch, or the other way round; rates with which nothing moves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.gradients import scheduled_by
from stayfinite.readers.configs.course.models import number_of
from stayfinite.readers.configs.course.terms import Term, alike, leaves
from stayfinite.readers.configs.course.updates import Update
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.program import Program

_FEW_BATCHES = 10
"""Batches of an epoch, where nobody can tell."""
_USEFUL, _DEAD = 1e-2, 1e-3
"""Parts of the rate with which an end of training is usual, and is none."""
_LEAST_RATE = 1e-8
_ADAPTIVE = lazy_regex(r"\w*(?:Adam|RMSprop|Adagrad|Lion|LAMB|Lamb|SGD)\w*")
_SET_ELSEWHERE = lazy_regex(r"param_groups|OneCycleLR|CyclicLR|\[['\"]lr['\"]\]|read_csv|loadtxt|\.load\(|LambdaLR")
_SUMS = lazy_regex(r"reduction\s*=\s*['\"]sum|size_average\s*=\s*False|loss\w* = [^\n]*\.sum\(\)$", re.MULTILINE)
_SIZED = ("total_steps", "T_max", "num_training_steps", "total_iters", "max_iters")


class _Loop(NamedTuple):
    """The loop over epochs, and what is known of its length."""

    rounds: Term | None
    epochs: float | None
    batches: float | None


class _Given(NamedTuple):
    """The arguments of a schedule."""

    course: Course
    schedule: Term

    def value(self, name: str) -> Term | None:
        """One by its name."""
        names = _PLACES.get(self.schedule.last, ())
        return self.schedule.given(names.index(name) + 1 if name in names else -1, name)

    def number(self, name: str) -> float | None:
        """Its number."""
        return number_of(self.course, self.value(name))

    def words(self, name: str) -> str:
        """Its source."""
        call, names = self.schedule.node, _PLACES.get(self.schedule.last, ())
        place = names.index(name) + 1 if name in names else len(call.args)
        named = [each.value for each in call.keywords if each.arg == name] + call.args[place : place + 1]
        return ast.unparse(named[0]) if named else ""


_PLACES: dict[str, tuple[str, ...]] = {
    "StepLR": ("step_size", "gamma"), "ExponentialLR": ("gamma",), "MultiStepLR": ("milestones", "gamma"),
    "CosineAnnealingLR": ("T_max",), "OneCycleLR": ("max_lr", "total_steps"),
    "get_linear_schedule_with_warmup": ("num_warmup_steps", "num_training_steps"),
    "get_cosine_schedule_with_warmup": ("num_warmup_steps", "num_training_steps"),
}  # fmt: skip


def scheduled(program: Program) -> Iterator[Fault]:
    """Schedules in the wrong unit."""
    for event in program.of("schedule"):
        schedule = event.thing
        optimizer = scheduled_by(schedule) if schedule is not None else None
        if schedule is None or optimizer is None or (isinstance(event.node, ast.Call) and event.node.args):
            continue
        steps = program.of("step", optimizer)
        if (
            len({each.loops for each in steps}) != 1
            or len(steps[0].loops) < 2
            or not isinstance(schedule.node, ast.Call)
        ):
            continue
        if len({each.loops for each in program.of("schedule", schedule)}) != 1:
            continue
        given, loop = _Given(program.course, schedule), _loop(program.course, steps[0])
        text = ""
        if event.loops == steps[0].loops and not event.conditions:
            text = _too_often(given, loop)
        elif event.loops == steps[0].loops[:-1]:
            text = _too_rarely(given, loop)
        if text:
            yield Fault("lr-schedule-bug", text, getattr(event.node, "lineno", 0))


def floored(program: Program) -> Iterator[Fault]:
    """`LambdaLR(optimizer, lambda step: (total - step) // total)`, which is 0 from the second step on."""
    for schedule in program.course.terms:
        function = schedule.given(1, "lr_lambda") if schedule.op == "made" and schedule.last == "LambdaLR" else None
        if function is None or function.op != "function" or len(function.node.args.args) != 1:
            continue
        step, body = function.node.args.args[0].arg, function.node.body
        last = body[-1] if isinstance(body, list) else ast.Return(body)
        factor = _inside(last.value) if isinstance(last, ast.Return) and last.value is not None else None
        if not isinstance(factor, ast.BinOp) or not isinstance(factor.op, ast.FloorDiv):
            continue
        left, whole = _inside(factor.left), ast.unparse(_inside(factor.right))
        if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Sub) and ast.unparse(left) == f"{whole} - {step}":
            text = f"{ast.unparse(factor)[:60]} is 0 from the second step on: // rounds down"
            yield Fault("lr-zero", text, factor.lineno, fix="divide with /")


def _inside(factor: ast.expr) -> ast.expr:
    """`x` of `max(0, x)` and `float(x)`."""
    while isinstance(factor, ast.Call) and ast.unparse(factor.func) in ("max", "min", "float"):
        changing = [each for each in factor.args if not isinstance(each, ast.Constant)]
        if len(changing) != 1:
            break
        factor = changing[0]
    return factor


def _loop(course: Course, step: Update) -> _Loop:
    epochs, batches = (course.over.get(each) for each in step.loops[-2:])
    return _Loop(_rounds(epochs), _length(course, epochs), _length(course, batches))


def _range(over: Term | None) -> tuple[Term, ...]:
    """What a loop's `range` is given."""
    while over is not None and over.op == "call" and over.last == "enumerate" and over.parts:
        over = over.parts[0]
    return over.parts if over is not None and over.op == "call" and over.last in ("range", "trange") else ()


def _rounds(over: Term | None) -> Term | None:
    """`epochs` of `for epoch in range(epochs)` and of `range(1, epochs + 1)`."""
    given = _range(over)
    if len(given) == 2 and given[0].data == 1 and given[1].op == "binary" and given[1].name == "Add":
        return given[1].parts[0] if given[1].parts[1].data == 1 else None
    return given[0] if len(given) == 1 else None


def _length(course: Course, over: Term | None) -> float | None:
    given = [number_of(course, each) for each in _range(over)]
    if not given or None in given:
        return None
    first, last, pace = ([0.0, *given, 1.0] if len(given) == 1 else [*given, 1.0])[:3]
    return max(0.0, (last - first) / pace) if first is not None and last is not None and pace else None


def _too_often(given: _Given, loop: _Loop) -> str:
    """What is wrong with a schedule in epochs that each batch steps."""
    layer, epochs, batches = given.schedule.last, loop.epochs, max(loop.batches or _FEW_BATCHES, 2)
    if layer == "CosineAnnealingLR":
        asked, number = given.value("T_max"), given.number("T_max")
        same = (
            asked is not None and loop.rounds is not None and alike(asked, loop.rounds) and not _counts_batches(asked)
        )
        if same or (number is not None and number == epochs and number > 1):
            return f"CosineAnnealingLR(T_max={given.words('T_max')}) counts epochs, and each batch steps it"
    if epochs is None or epochs < 2:
        return ""
    if layer == "MultiStepLR":
        marks = given.value("milestones")
        known = (
            [number_of(given.course, each) for each in marks.parts] if marks is not None and marks.op == "row" else []
        )
        if known and all(each is not None and each <= epochs for each in known) and max(filter(None, known)) < batches:
            return f"MultiStepLR's milestones {given.words('milestones')} count epochs, and each batch steps it"
    if layer in ("StepLR", "ExponentialLR"):
        every = given.number("step_size") if layer == "StepLR" else 1.0
        factor = given.number("gamma") if given.value("gamma") is not None else 0.1
        if every and factor and 0 < factor < 1 and every <= epochs:
            by_epoch, by_batch = factor ** (epochs // every), factor ** (epochs * batches / every)
            if by_batch < _DEAD and by_epoch >= _USEFUL * factor:
                return (
                    f"{layer} is stepped in each batch: {factor:g} times the rate every {every:g} batches, not epochs"
                )
    return ""


def _too_rarely(given: _Given, loop: _Loop) -> str:
    """What is wrong with a schedule in batches that each epoch steps."""
    layer = given.schedule.last
    if layer == "OneCycleLR" and given.value("steps_per_epoch") is not None and given.number("steps_per_epoch") != 1:
        return "OneCycleLR counts batches (steps_per_epoch), and only each epoch steps it"
    for name in _SIZED:
        asked, number = given.value(name), given.number(name)
        much = number is not None and loop.epochs is not None and number >= 4 * loop.epochs
        if asked is not None and (_counts_batches(asked) or (much and layer == "OneCycleLR")):
            return f"{layer}({name}={given.words(name)[:60]}) counts batches, and only each epoch steps it"
    return ""


def _counts_batches(asked: Term) -> bool:
    """`epochs * len(loader)`, also by a name."""
    if (asked.op, asked.name) != ("binary", "Mult"):
        return False
    words = ast.unparse(asked.node) if isinstance(asked.node, ast.AST) else ""
    counted = any(each.op == "call" and each.last == "len" for each in leaves(asked))
    return counted or "per_epoch" in words or "batches" in words


def rates(program: Program) -> Iterator[Fault]:
    """A rate of 0, or one with which no weight moves."""
    if _SET_ELSEWHERE.search(program.text):
        return
    for optimizer in program.optimizers:
        call, layer = optimizer.node, optimizer.last
        if not isinstance(call, ast.Call) or not any(each.loops for each in program.of("step", optimizer)):
            continue
        rate = number_of(program.course, optimizer.given(1, "lr"))
        if rate is None or "'lr':" in ast.unparse(call) or not _ADAPTIVE.fullmatch(layer):
            continue
        if layer == "SGD" and _SUMS.search(program.text):
            continue
        if rate == 0:
            yield Fault("lr-zero", f"{layer} gets lr={rate:g}: no weight moves", call.lineno)
        elif 0 < rate <= _LEAST_RATE:
            yield Fault("lr-too-low", f"{layer} gets lr={rate:g}: no weight moves noticeably", call.lineno)
