"""Schedules built in epochs and stepped in each batch, or the other way round; rates with which nothing moves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.updates.numbers import Numbers
from stayfinite.readers.configs.updates.program import Program
from stayfinite.readers.configs.updates.stepping import Found
from stayfinite.readers.configs.updates.things import Event

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

    text: str
    epochs: float | None
    batches: float | None


def scheduled(program: Program) -> Iterator[Found]:
    """Schedules in the wrong unit."""
    numbers = Numbers(program.tree)
    for event in program.of("schedule"):
        schedule = event.thing
        if schedule is None or schedule.on is None or (isinstance(event.node, ast.Call) and event.node.args):
            continue
        steps = program.of("step", schedule.on)
        if (
            len({each.loops for each in steps}) != 1
            or len(steps[0].loops) < 2
            or not isinstance(schedule.node, ast.Call)
        ):
            continue
        others = program.of("schedule", schedule)
        if len({each.loops for each in others}) != 1:
            continue
        given = _arguments(schedule.node, schedule.layer)
        loop = _loop(numbers, steps[0])
        if event.loops == steps[0].loops and not event.conditions:
            text = _too_often(numbers, schedule.layer, given, loop)
        elif event.loops == steps[0].loops[:-1]:
            text = _too_rarely(numbers, schedule.layer, given, loop)
        else:
            continue
        if text:
            yield "lr-schedule-bug", text, getattr(event.node, "lineno", 0), False


def _loop(numbers: Numbers, step: Event) -> _Loop:
    epochs, batches = step.loops[-2], step.loops[-1]
    count = _rounds(epochs)
    shown = "" if count is None else ast.unparse(count)
    return _Loop(shown, _length(numbers, epochs), _length(numbers, batches))


def _rounds(loop: ast.AST) -> ast.expr | None:
    """`epochs` of `for epoch in range(epochs)` and of `range(1, epochs + 1)`."""
    over = getattr(loop, "iter", None)
    while (
        isinstance(over, ast.Call) and ast.unparse(over.func).rpartition(".")[2] in ("tqdm", "enumerate") and over.args
    ):
        over = over.args[0]
    if not (isinstance(over, ast.Call) and ast.unparse(over.func) in ("range", "trange", "tqdm.trange") and over.args):
        return None
    if len(over.args) == 1:
        return over.args[0]
    last = over.args[1]
    plus_one = isinstance(last, ast.BinOp) and isinstance(last.op, ast.Add) and ast.unparse(last.right) == "1"
    starts_at_one = len(over.args) == 2 and ast.unparse(over.args[0]) == "1"
    return last.left if starts_at_one and isinstance(last, ast.BinOp) and plus_one else None


def _length(numbers: Numbers, loop: ast.AST) -> float | None:
    count = _rounds(loop)
    if count is not None:
        return numbers.of(count)
    over = getattr(loop, "iter", None)
    if isinstance(over, ast.Call) and ast.unparse(over.func) == "range" and len(over.args) in (2, 3):
        first, last = numbers.of(over.args[0]), numbers.of(over.args[1])
        pace = numbers.of(over.args[2]) if len(over.args) == 3 else 1.0
        if first is not None and last is not None and pace:
            return max(0.0, (last - first) / pace)
    return None


def _arguments(call: ast.Call, layer: str) -> dict[str, ast.expr]:
    places = {"StepLR": ("", "step_size", "gamma"), "ExponentialLR": ("", "gamma"),
              "MultiStepLR": ("", "milestones", "gamma"),
              "CosineAnnealingLR": ("", "T_max"), "OneCycleLR": ("", "max_lr", "total_steps"),
              "get_linear_schedule_with_warmup": ("", "num_warmup_steps", "num_training_steps"),
              "get_cosine_schedule_with_warmup": ("", "num_warmup_steps", "num_training_steps")}  # fmt: skip
    found = dict(zip(places.get(layer, ()), call.args, strict=False))
    found.update({each.arg: each.value for each in call.keywords if each.arg})
    return found


def _too_often(numbers: Numbers, layer: str, given: dict[str, ast.expr], loop: _Loop) -> str:
    """What is wrong with a schedule in epochs that each batch steps."""
    epochs, batches = loop.epochs, max(loop.batches or _FEW_BATCHES, 2)
    if layer == "CosineAnnealingLR":
        asked = given.get("T_max")
        same = asked is not None and ast.unparse(asked) == loop.text and not _counts_batches(numbers, asked)
        number = numbers.of(asked)
        if same or (number is not None and number == epochs and number > 1):
            return (
                f"CosineAnnealingLR(T_max={ast.unparse(asked) if asked else ''}) counts epochs, and each batch steps it"
            )
    if epochs is None or epochs < 2:
        return ""
    if layer == "MultiStepLR":
        marks = given.get("milestones")
        known = [numbers.of(each) for each in marks.elts] if isinstance(marks, (ast.List, ast.Tuple)) else []
        if known and all(each is not None and each <= epochs for each in known) and max(filter(None, known)) < batches:
            return (
                f"MultiStepLR's milestones {ast.unparse(marks) if marks else ''} count epochs, and each batch steps it"
            )
    if layer in ("StepLR", "ExponentialLR"):
        every = numbers.of(given.get("step_size")) if layer == "StepLR" else 1.0
        factor = numbers.of(given.get("gamma")) if "gamma" in given else 0.1
        if every and factor and 0 < factor < 1 and every <= epochs:
            by_epoch, by_batch = factor ** (epochs // every), factor ** (epochs * batches / every)
            if by_batch < _DEAD and by_epoch >= _USEFUL * factor:
                return (
                    f"{layer} is stepped in each batch: {factor:g} times the rate every {every:g} batches, not epochs"
                )
    return ""


def _too_rarely(numbers: Numbers, layer: str, given: dict[str, ast.expr], loop: _Loop) -> str:
    """What is wrong with a schedule in batches that each epoch steps."""
    if layer == "OneCycleLR" and "steps_per_epoch" in given and numbers.of(given["steps_per_epoch"]) != 1:
        return "OneCycleLR counts batches (steps_per_epoch), and only each epoch steps it"
    for name in _SIZED:
        asked = given.get(name)
        if asked is None:
            continue
        number = numbers.of(asked)
        much = number is not None and loop.epochs is not None and number >= 4 * loop.epochs
        if _counts_batches(numbers, asked) or (much and layer == "OneCycleLR"):
            return f"{layer}({name}={ast.unparse(asked)[:60]}) counts batches, and only each epoch steps it"
    return ""


def _counts_batches(numbers: Numbers, asked: ast.expr) -> bool:
    """`epochs * len(loader)`, also by a name."""
    for each in (asked, numbers.expression(asked)):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult):
            text = ast.unparse(each)
            if "len(" in text or "per_epoch" in text or "batches" in text:
                return True
    return False


def rates(program: Program) -> Iterator[Found]:
    """A rate of 0, or one with which no weight moves."""
    numbers = Numbers(program.tree)
    if _SET_ELSEWHERE.search(program.text):
        return
    for optimizer in program.optimizers:
        call = optimizer.node
        if not isinstance(call, ast.Call) or not any(each.loops for each in program.of("step", optimizer)):
            continue
        given = next(
            (each.value for each in call.keywords if each.arg == "lr"), call.args[1] if call.args[1:] else None
        )
        rate = numbers.of(given)
        if rate is None or "'lr':" in ast.unparse(call) or not _ADAPTIVE.fullmatch(optimizer.layer):
            continue
        if optimizer.layer == "SGD" and _SUMS.search(program.text):
            continue
        if rate == 0:
            yield "lr-zero", f"{optimizer.layer} gets lr={rate:g}: no weight moves", call.lineno, False
        elif 0 < rate <= _LEAST_RATE:
            yield "lr-too-low", f"{optimizer.layer} gets lr={rate:g}: no weight moves noticeably", call.lineno, False
