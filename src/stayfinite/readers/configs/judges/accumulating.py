"""Steps that are taken every few batches: what is lost, summed up, or never reached in between."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.models import number_of
from stayfinite.readers.configs.course.terms import Term, alike, bare, leaves, number
from stayfinite.readers.configs.course.updates import Update
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.losses import loss_name
from stayfinite.readers.configs.judges.program import Program

_ADAPTIVE = lazy_regex(r"\w*(?:Adam|RMSprop|Adagrad|Adadelta|Lion|Rprop|Adafactor|LAMB|Lamb)\w*")
_MICRO = lazy_regex(r"\w*(?:accum|micro)\w*", re.IGNORECASE)
_BOUNDED = lazy_regex(r"clip_grad|\.grad\b|div_?\(|_foreach_")
"""What makes a sum as small as a mean."""
_BY_HAND = lazy_regex(r"\.grad\b")
_SMALL = 0.1
"""A rate, times the number of batches, that SGD bears in most models."""


def lost_sums(program: Program) -> Iterator[Fault]:
    """`zero_grad()` in each batch, and `step()` in every nth: the other batches are computed for nothing."""
    for step, rest in _every_nth(program):
        zeros = _cleared_each_time(program, step)
        others = [each for each in program.of("step") if _around(each, step)]
        kept = _BY_HAND.search(program.text)  # gradients that are put away before they are cleared
        if zeros and not others and not kept and _all_beside(program, step):
            text = f"zero_grad() runs in each batch, step() in one of {_shown(rest)}: the others are lost"
            fix = "call zero_grad() right after step(), under the same condition"
            yield Fault("cleared-before-step", text, _line(zeros[0]), fix=fix)


def _cleared_each_time(program: Program, step: Update) -> list[Update]:
    """The calls that clear the gradients of a step in each batch."""
    zeros = [each for each in program.of("zero") if _around(each, step)]
    return [each for each in zeros if step.thing is not None and program.clears(each, step.thing)]


def _around(event: Update, step: Update) -> bool:
    """Whether it happens in each batch, and the step only in some."""
    return event.loops == step.loops and event.conditions == step.conditions[:-1]


def not_divided(program: Program) -> Iterator[Fault]:
    """A step every few batches by SGD, where the summed losses are divided by nothing."""
    for step, rest in _every_nth(program):
        if step.thing is None or _ADAPTIVE.fullmatch(step.thing.last) or not _all_beside(program, step):
            continue
        if _cleared_each_time(program, step):
            continue
        plain = [each for each in program.of("backward") if each.loops == step.loops]
        losses = [each.term for each in program.course.events if any(each.node is one.node for one in plain)]
        ways = {_is_divided(each) for each in losses}
        if ways == {False}:
            sure = not _BOUNDED.search(program.text) and not _is_small(program, step.thing, rest.parts[1])
        else:
            sure = True not in ways and _never_used(program, _shown(rest))
        if sure:
            shown = _shown(rest)
            text = f"the losses of {shown} batches are summed, and never divided by {shown}"
            yield Fault("accumulation-unscaled", text, _line(plain[0]))


def never_reached(program: Program) -> Iterator[Fault]:
    """`if i % n == n: optimizer.step()`."""
    for optimizer in program.optimizers:
        steps = program.of("step", optimizer)
        never = [_never(program, each) for each in steps]
        if steps and all(never):
            text = f"{never[0]} is never true, so {program.name(optimizer) or 'optimizer'}.step() is never reached"
            yield Fault("step-missing", text, _line(steps[0]), fix="compare with 0: `i % n == 0`")


def _never(program: Program, step: Update) -> str:
    """The condition of a step that never holds."""
    tests = [getattr(each, "test", None) for each, branch in step.conditions if branch == "body"]
    tests = [one for each in tests for one in _anded(each)]
    for term in program.course.terms:
        if (term.op, term.name) == ("compare", "Eq") and len(term.parts) == 2 and term.node in tests:
            rest, asked = term.parts
            if (rest.op, rest.name) != ("binary", "Mod"):
                continue
            count, known = number(rest.parts[1]), number(asked)
            if alike(rest.parts[1], asked) or (count is not None and known is not None and 0 < count <= known):
                return ast.unparse(term.node)
    return ""


def _anded(test: ast.expr | None) -> list[ast.expr | None]:
    """`a` and `b` of `a and b`."""
    return [*test.values] if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def _every_nth(program: Program) -> Iterator[tuple[Update, Term]]:
    """Each step under `i % n == 0`, with `i % n`."""
    rests = {
        id(each.node): each
        for each in program.course.terms
        if (each.op, each.name) == ("binary", "Mod") and isinstance(each.node, ast.BinOp)
    }
    for step in program.of("step"):
        node, branch = step.conditions[-1] if step.conditions and step.loops else (None, "")
        test = getattr(node, "test", None)
        for each in test.values if isinstance(test, ast.BoolOp) else [test]:
            rest = rests.get(id(_divided_by(each)))
            if branch == "body" and rest is not None and number_of(program.course, rest.parts[1]) not in (0, 1):
                yield step, rest
                break


def _divided_by(test: ast.expr | None) -> ast.expr | None:
    """`i % n` of `i % n == 0` and of `not i % n`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    equal = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)
    return test.left if isinstance(test, ast.Compare) and equal else None


def _all_beside(program: Program, step: Update) -> bool:
    """Whether each batch, and not only those of the step, goes through every backward of the loop."""
    inside = [each for each in program.of("backward") if each.loops[: len(step.loops)] == step.loops]
    return bool(inside) and all(_around(each, step) for each in inside)


def _is_divided(loss: Term, depth: int = 0) -> bool | None:
    """Whether a loss is divided or weighted; None where nobody can tell."""
    loss = bare(loss)
    if (loss.op, loss.name) == ("method", "scale") and len(loss.parts) > 1:
        return _is_divided(loss.parts[1], depth + 1)
    if loss_name(loss):
        layer = loss.parts[0] if loss.op == "applied" else loss
        return bool(layer.keywords.keys() & {"reduction", "size_average", "reduce"})
    if loss.op == "attribute":
        return False if loss.name == "loss" else None
    if loss.op == "binary" and loss.name in ("Div", "Mult"):
        return True
    if depth < 8 and (loss.op == "either" or (loss.op == "binary" and loss.name in ("Add", "Sub"))):
        ways = {_is_divided(each, depth + 1) for each in loss.parts}
        return True if True in ways else None if None in ways else False
    return None


def _is_small(program: Program, optimizer: Term, count: Term) -> bool:
    """Whether the rate is made for a sum: computed, or small even times the number of batches."""
    rate = optimizer.given(1, "lr")
    if rate is None or isinstance(rate.node, ast.BinOp) or any(each.op == "binary" for each in leaves(rate)):
        return True
    known, times = number_of(program.course, rate), number_of(program.course, count)
    return known is not None and known * (times or 8.0) < _SMALL


def _never_used(program: Program, count: str) -> bool:
    """Whether a number of micro batches is named, and neither it nor anything else divides a loss."""
    name = count.rpartition(".")[2]
    used = (isinstance(node, (ast.BinOp, ast.AugAssign)) and _divides(node, name) for node in program.nodes)
    return _MICRO.fullmatch(name) is not None and "div" not in program.text and not any(used)


def _divides(node: ast.BinOp | ast.AugAssign, name: str) -> bool:
    """Whether something is divided by this name, or a loss by anything."""
    words = ast.unparse(node)
    by_name = name in words and isinstance(node.op, (ast.Div, ast.Mult, ast.FloorDiv))
    of_a_log = any(each in words for each in ("len(", "total", "running"))
    return by_name or ("loss" in words and isinstance(node.op, ast.Div) and not of_a_log)


def _shown(rest: Term) -> str:
    """`n` of `i % n`, as it is written there."""
    return ast.unparse(rest.node.right)[:40]


def _line(event: Update) -> int:
    return getattr(event.node, "lineno", 0)
