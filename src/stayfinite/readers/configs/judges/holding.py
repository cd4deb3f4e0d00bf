"""What the optimizers hold against what backward reaches: layers that nobody trains, losses without a graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.calling import held_by
from stayfinite.readers.configs.course.picking import MODULES, parts_in
from stayfinite.readers.configs.course.terms import Term, is_layer
from stayfinite.readers.configs.course.weights import has_weights, is_module, is_parameter, is_trained
from stayfinite.readers.configs.judges.program import Program
from stayfinite.readers.configs.judges.stepping import Found

_ON_PURPOSE = lazy_regex(
    r"\.requires_grad\s*=\s*False|requires_grad_\(\s*False|pretrained|freez|frozen|weights=\w*W|reservoir|"
    r"random.?feature|extreme learning|linear.?prob|transfer|fine.?tun|polyak|\bema\b|\.load\(|"
    r"\.copy_\(|\.weight\.data(?:\s*=|\[)|\.\w+\.weight\s*=[^=]", re.IGNORECASE
)  # fmt: skip
_FIXED = lazy_regex(
    r"target|teacher|ema\b|momentum|random|fixed|\bold|_old|shadow|percept|vgg|anchor|\bref", re.IGNORECASE
)


def without_graph(program: Program) -> Iterator[Found]:
    """A backward whose loss was computed by a model, and leads back to no weight."""
    alive = {id(event.node) for event, loss in program.losses() if loss.sources or not loss.known}
    alive |= {id(event.node) for event in program.of("backward") if event.loss is None}
    for event, loss in program.losses():
        if id(event.node) not in alive and loss.known and not loss.sources and loss.seen and event.loops:
            text = f"the loss has no graph, so backward() reaches no weight of {program.names(list(loss.seen))}"
            yield "detached-loss", text, getattr(event.node, "lineno", 0), False
            return


def cut_off(program: Program) -> Iterator[Found]:
    """Layers that an optimizer holds, whose output reaches the loss, but only without its graph."""
    losses = [loss for _, loss in program.losses()]
    if len(losses) != len(program.of("backward")) or not all(each.known for each in losses):
        return
    if any(program.held(each) is None for each in program.optimizers) or _ON_PURPOSE.search(program.text):
        return
    reached = {part for loss in losses for part in loss.sources}
    if not reached:
        return
    held = {part for each in program.optimizers if program.of("step", each) for part in program.leaves(each)}
    seen = {part for loss in losses for part in loss.seen} - reached
    lost = [each for each in seen if id(each) in held and has_weights(each) and not _excused(program, each)]
    if lost and not any(_FIXED.search(program.path(each)) for each in lost):
        first = min(lost, key=lambda each: each.line)
        text = f"no gradient reaches {program.names(lost)}: the graph ends between its output and the loss"
        yield "detached-loss", text, first.line, False


def held_by_nobody(program: Program) -> Iterator[Found]:
    """Layers that backward reaches and no optimizer holds."""
    optimizers = program.optimizers
    models = [each for one in optimizers for each in program.held(one) or ()]
    if not optimizers or any(program.held(each) is None for each in optimizers) or not program.all_traced("step"):
        return
    held = {part for each in optimizers for part in program.leaves(each)}
    if any(each.thing is None or any(id(part) in held for part in program.updates.parts(each.thing))
           for each in program.of("by hand")):  # fmt: skip
        return
    if any(not is_module(each) and not is_parameter(each) for each in models) or not any(map(is_module, models)):
        return  # an image is trained, and the network is not
    reached = [part for _, loss in program.losses() for part in loss.sources if is_trained(part) or not is_layer(part)]
    if not reached or not all(program.of("step", each) for each in optimizers):
        return
    if all(loss.known for _, loss in program.losses()) and not {id(each) for each in reached} & held:
        text = f"the optimizer holds other weights than those of the loss: {program.names(reached)} are in none"
        if not any(_excused(program, each) for each in reached) and any(map(has_weights, reached)):
            yield "params-not-in-optimizer", text, optimizers[-1].line, False
        return
    lost = [each for each in dict.fromkeys(reached) if id(each) not in held and is_layer(each) and has_weights(each)]
    if not lost or _ON_PURPOSE.search(program.text) or any(_is_meant(program, each) for each in lost):
        return
    first = min(lost, key=lambda each: each.line)
    text = f"no optimizer holds {program.names(lost)}: these weights are never trained"
    yield "params-not-in-optimizer", text, first.line, False


def _excused(program: Program, part: Term) -> bool:
    return id(part) in program.updates.excused or id(part) in program.course.fleeting


def _is_meant(program: Program, part: Term) -> bool:
    """Whether it looks like weights that are to stay as they are."""
    copied = id(part) in program.course.copies
    return _excused(program, part) or copied or _FIXED.search(program.path(part)) is not None


def all_frozen(program: Program) -> Iterator[Found]:
    """An optimizer all of whose weights are frozen."""
    for optimizer in program.optimizers:
        if (
            id(optimizer) in program.updates.stepped_frozen
            and program.held(optimizer)
            and not _excused(program, optimizer)
        ):
            name = program.name(optimizer) or "the optimizer"
            yield "params-frozen", f"every weight that {name} holds has requires_grad = False", optimizer.line, False


def plain_lists(program: Program) -> Iterator[Found]:
    """Layers with weights in a plain list or dict of a module, which no parameters() contains."""
    stacked = {id(inner) for each in program.course.terms if is_layer(each) for part in each.parts
               for inner in (part, *part.parts)}  # fmt: skip
    for owner in program.course.terms:
        code = ast.unparse(owner.data.node) if owner.op == "instance" and is_module(owner) else ""
        if not code or _REGISTERS.search(code):
            continue
        registered = {id(layer) for each in owner.attributes.values() if each.op in MODULES for layer in held_by(each)}
        for name, value in owner.attributes.items():
            parts = parts_in(value) if value.op in ("row", "dict") and id(value) not in stacked else []
            if not parts or id(parts[0]) in registered or not any(map(has_weights, held_by(parts[0]))):
                continue
            used = len(re.findall(rf"self\.{name}\b", code)) > 1
            if used and not re.search(rf"(?<!self)\.{name}\b", program.text):
                kind = "dict" if isinstance(value.node, (ast.Dict, ast.DictComp)) else "list"
                words = f"self.{name} is a plain {kind} of layers: parameters() does not contain them"
                yield "unregistered-module", words, value.line, False


_REGISTERS = lazy_regex(r"add_module|register_module|setattr\(|def parameters|__dict__|_modules|\.parameters\(")
