"""Backward, step and zero_grad of a whole script, and what the optimizers hold against what backward reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.calling import held_by
from stayfinite.readers.configs.course.gradients import has_weights, is_module, is_parameter, is_trained
from stayfinite.readers.configs.course.picking import MODULES, parts_in
from stayfinite.readers.configs.course.terms import Term, is_layer, leaves
from stayfinite.readers.configs.course.updates import Update
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.program import Program
from stayfinite.readers.configs.program.names import dotted_name

_GRADIENT = lazy_regex(r"backward|\bgrad\(|\.grad\b|jacobian|vjp|\.minimize\(")
_CLEARED_SOMEHOW = lazy_regex(r"zero_grad|clear_grad|\.grad\b|\bgrad\(|_foreach_zero")
_CLEARS = lazy_regex(
    r"zero_grad|clear_grad|zero_\(|fill_\(|\.grad\s*(?::[^=]+)?=[^=]|del .*\.grad|autograd\.grad|\bgrad\("
)
_BY_HAND = lazy_regex(r"\.grad\b|\bgrad\(|named_parameters\(|_foreach_")
_ADAPTIVE = lazy_regex(r"\w*(?:Adam|RMSprop|Adagrad|Adadelta|Lion|Rprop|Adafactor|LAMB|Lamb)\w*")
_OWN_STEPS = lazy_regex(r"LBFGS|SAM|\w*Rprop\w*|\w*Sparse\w*")


def named_without_call(nodes: Sequence[ast.AST]) -> Iterator[Fault]:
    """`loss.backward` on a line of its own."""
    causes = {"backward": "step-missing", "step": "step-missing", "zero_grad": "no-zero-grad"}
    schedules = re.compile(r"sched|\blr", re.IGNORECASE)
    for node in nodes:
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Attribute) and value.attr in causes and dotted_name(value, {}):
            name = ast.unparse(value)
            if not (value.attr == "step" and schedules.search(name)):
                yield Fault(causes[value.attr], f"{name} is named and not called: write {name}()", value.lineno)


def never_called(program: Program) -> Iterator[Fault]:
    """No backward, or an optimizer that never steps."""
    steps = [each for each in program.of("step") if each.loops and each.thing is not None and not _arguments(each)]
    if steps and not _GRADIENT.search(program.course.code):
        text = f"{_call(steps[0])}() is called, and backward() never is"
        yield Fault("step-missing", text, _line(steps[0]))
    if not program.all_traced("step") or _BY_HAND.search(program.course.code):
        return
    looped = [each for each in program.of("backward") if each.loops]
    for optimizer in program.optimizers:
        alone = id(optimizer) not in program.excused and not program.of("step", optimizer)
        if looped and alone and program.name(optimizer) and program.of("zero", optimizer):
            yield Fault("step-missing", f"{program.name(optimizer)}.step() is never called", _line(looped[0]))


def never_cleared(program: Program) -> Iterator[Fault]:
    """Gradients that no batch clears: nowhere, before the loop alone, or in the first round alone."""
    if _by_hand(program) or not program.all_traced("zero_grad", "backward"):
        return
    for optimizer in program.optimizers:
        steps = [each for each in program.of("step", optimizer) if each.loops and not _arguments(each)]
        built = next(each for each in program.of("build", optimizer))
        if not steps or _OWN_STEPS.fullmatch(optimizer.last) or built.loops == steps[0].loops:
            continue
        step = steps[0]
        before = [each for each in program.of("backward") if each.loops[: len(step.loops)] == step.loops]
        zeros = [each for each in program.of("zero") if program.clears(each, optimizer)]
        if not before or all(_of_no_target(each) for each in before):
            continue
        if any(each.loops[: len(step.loops)] == step.loops and not _first_only(program, each) for each in zeros):
            continue
        if any(len(each.loops) >= len(step.loops) and each.loops != step.loops for each in zeros):
            continue
        if any(id(node) not in {id(each.node) for each in program.found} for node in _zero_calls(program)):
            continue
        mild = _ADAPTIVE.fullmatch(optimizer.last) is not None
        name = program.name(optimizer) or "optimizer"
        if zeros and _leaves_at_once(program.course.loops.get(step.loops[-1])):
            continue
        if not zeros and not _CLEARED_SOMEHOW.search(program.course.code):
            text = f"{name}.zero_grad() is never called: gradients add up from batch to batch"
            yield Fault("no-zero-grad", text, _line(step), mild=mild)
        elif zeros and _first_only(program, zeros[0]):
            yield Fault(
                "no-zero-grad", f"{_call(zeros[0])}() is called in the first round alone", _line(zeros[0]), mild=mild
            )
        elif zeros:
            where = "once for each epoch, and step() in each batch" if zeros[0].loops else "once, before the loop"
            yield Fault("no-zero-grad", f"{_call(zeros[0])}() is called {where}", _line(zeros[0]), mild=mild)


def _by_hand(program: Program) -> bool:
    """Whether weights that are trained, or unknown ones, are changed by hand."""
    held = {part for each in program.optimizers for part in program.leaves(each)}
    unknown = any(program.holds(each) is None for each in program.optimizers)
    return any(
        each.thing is None or unknown or any(id(part) in held for part in program.parts(each.thing))
        for each in program.of("by hand")
    )


def _of_no_target(backward: Update) -> bool:
    """`output.sum().backward()`: a script that shows that its code runs, and learns nothing."""
    node = backward.node
    summed = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if not isinstance(summed, ast.Call) or not isinstance(summed.func, ast.Attribute) or summed.args:
        return False
    return summed.func.attr in ("sum", "mean") and isinstance(summed.func.value, (ast.Name, ast.Call))


def by_hand(program: Program) -> Iterator[Fault]:
    """`w -= lr * w.grad` in a loop, and nothing clears `w.grad`."""
    if _CLEARS.search(program.text) or "backward" not in program.text:
        return
    for loop in program.nodes:
        if not isinstance(loop, (ast.For, ast.While)):
            continue
        body = "\n".join(map(ast.unparse, loop.body))
        if ".backward(" not in body or "requires_grad" in body or "Variable(" in body:
            continue
        for node in ast.walk(loop):
            subtracts = isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub)
            calls = (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("sub_", "add_")
            )
            if (subtracts or calls) and ".grad" in ast.unparse(node):
                shown = ast.unparse(node)[:80]
                text_of = f"{shown}: nothing clears the gradient, so it adds up from step to step"
                yield Fault("no-zero-grad", text_of, getattr(node, "lineno", loop.lineno))
                return


def in_wrong_order(program: Program) -> Iterator[Fault]:
    """zero_grad between backward and step, or two steps after one backward."""
    for optimizer in program.optimizers:
        if _OWN_STEPS.fullmatch(optimizer.last):
            continue
        name = program.name(optimizer) or "optimizer"
        own = [each for each in program.found if _matters(each, optimizer, program)]
        for place, event in enumerate(own):
            before = own[place - 1] if place else None
            if event.kind != "step" or _arguments(event) or before is None or not _beside(before, event):
                continue
            loop = [each for each in own if each.loops[: len(event.loops)] == event.loops]
            learns = [each for each in loop if each.kind == "backward"]
            if before.kind == "zero" and before.thing is not None and learns and event.loops:
                text = f"{_call(before)}() is called between backward and {name}.step(): the step finds no gradient"
                yield Fault("cleared-before-step", text, _line(before))
            elif (
                before.kind == "step"
                and before.thing is event.thing
                and before.node is not event.node
                and not _arguments(before)
                and learns
            ):
                yield Fault("double-step", f"{name}.step() is called twice after one backward", _line(event))
        yield from _cleared_at_the_end(program.name(optimizer), own)


def _cleared_at_the_end(name: str, own: list[Update]) -> Iterator[Fault]:
    """`step, backward, zero_grad` in a loop: the next step finds nothing."""
    steps = [each for each in own if each.kind == "step" and each.loops]
    for step in steps[:1]:
        loop = [each for each in own if each.loops[: len(step.loops)] == step.loops]
        kinds = [each.kind for each in loop]
        once = kinds[0] == "step" and kinds[-1] == "zero" and set(kinds[1:-1]) == {"backward"}
        if once and all(_beside(step, each) for each in loop) and not _arguments(step):
            after = f"{name}.step()"
            text = f"{_call(loop[-1])}() comes after backward and before {after}: it finds no gradient"
            yield Fault("cleared-before-step", text, _line(loop[-1]))


def _matters(event: Update, optimizer: Term, program: Program) -> bool:
    if event.kind == "step":
        return event.thing is optimizer or event.thing is None
    if event.kind == "zero":
        return program.clears(event, optimizer)
    return event.kind in ("backward", "unknown", "by hand")


def _beside(one: Update, other: Update) -> bool:
    return one.loops == other.loops and one.conditions == other.conditions and one.kind != "unknown"


def _first_only(program: Program, event: Update) -> bool:
    """`if epoch == 0:`."""
    test = getattr(event.conditions[-1][0], "test", None) if event.conditions else None
    targets = {getattr(getattr(each, "target", None), "id", "") for each in map(program.course.loops.get, event.loops)}
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(test.left, ast.Name)
        and test.left.id in targets
        and isinstance(test.comparators[0], ast.Constant)
        and type(test.comparators[0].value) is int
        and event.conditions[-1][1] == "body"
    )


def _leaves_at_once(loop: ast.AST | None) -> bool:
    return any(isinstance(each, (ast.Break, ast.Return)) for each in getattr(loop, "body", ()))


def _zero_calls(program: Program) -> list[ast.AST]:
    return [each for each in program.nodes if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
            and each.func.attr == "zero_grad"]  # fmt: skip


def _arguments(event: Update) -> bool:
    node = event.node
    if not isinstance(node, ast.Call):
        return False
    by_scaler = isinstance(node.func, ast.Attribute) and "scaler" in ast.unparse(node.func).lower()
    return bool(node.args or node.keywords) and not by_scaler


def _call(event: Update) -> str:
    return ast.unparse(event.node.func)[:60] if isinstance(event.node, ast.Call) else ""


def _line(event: Update) -> int:
    return getattr(event.node, "lineno", 0)


_ON_PURPOSE = lazy_regex(
    r"\.requires_grad\s*=\s*False|requires_grad_\(\s*False|pretrained|freez|frozen|weights=\w*W|reservoir|"
    r"random.?feature|extreme learning|linear.?prob|transfer|fine.?tun|polyak|\bema\b|\.load\(|"
    r"\.copy_\(|\.weight\.data(?:\s*=|\[)|\.\w+\.weight\s*=[^=]", re.IGNORECASE
)  # fmt: skip
KEPT_FIXED = lazy_regex(
    r"target|teacher|ema\b|momentum|random|fixed|\bold|_old|shadow|percept|vgg|anchor|\bref", re.IGNORECASE
)


def without_graph(program: Program) -> Iterator[Fault]:
    """A backward whose loss was computed by a model, and leads back to no weight."""
    alive = {id(event.node) for event, loss in program.losses() if loss.sources or not loss.known}
    alive |= {id(event.node) for event in program.of("backward") if event.loss is None}
    for event, loss in program.losses():
        looped = event.loops or program.course.framed
        if id(event.node) not in alive and loss.known and not loss.sources and loss.seen and looped:
            text = f"the loss has no graph, so backward() reaches no weight of {program.names(list(loss.seen))}"
            yield Fault("detached-loss", text, getattr(event.node, "lineno", 0))
            return


def cut_off(program: Program) -> Iterator[Fault]:
    """Layers that an optimizer holds, whose output reaches the loss, but only without its graph."""
    losses = [loss for _, loss in program.losses()]
    if len(losses) != len(program.of("backward")) or not all(each.known for each in losses):
        return
    if any(program.holds(each) is None for each in program.optimizers):
        return
    reached = {part for loss in losses for part in loss.sources}
    if not reached or any(map(_picks, program.optimizers)):
        return
    steps = [each for each in program.optimizers if program.of("step", each) or program.course.framed]
    held = {part for each in steps for part in program.leaves(each)}
    seen = {part for loss in losses for part in loss.seen} - reached
    lost = [each for each in seen if id(each) in held and has_weights(each)]
    listed = {id(each) for one in steps for each in program.holds(one) or () if len(program.holds(one) or ()) > 1}
    asked = [each for each in lost if id(each) in listed and id(each) not in program.frozen]
    meant = _ON_PURPOSE.search(program.text) is not None
    lost = asked or [each for each in lost if not meant and not is_excused(program, each)]
    if lost and not any(KEPT_FIXED.search(program.path(each)) for each in lost):
        first = min(lost, key=lambda each: each.line)
        text = f"no gradient reaches {program.names(lost)}: the graph ends between its output and the loss"
        yield Fault("detached-loss", text, first.line)


def _picks(optimizer: Term) -> bool:
    """Whether a loop over all weights put some of them into a list for it."""
    given = optimizer.given(0, "params")
    return given is not None and any(
        each.op == "each" and isinstance(each.node, ast.For) and bool(each.parts)
        and each.parts[0].name in ("parameters", "named_parameters") for each in leaves(given)
    )  # fmt: skip


def held_by_nobody(program: Program) -> Iterator[Fault]:
    """Layers that backward reaches and no optimizer holds."""
    optimizers = program.optimizers
    models = [each for one in optimizers for each in program.holds(one) or ()]
    if not optimizers or any(program.holds(each) is None for each in optimizers) or not program.all_traced("step"):
        return
    held = {part for each in optimizers for part in program.leaves(each)}
    if any(each.thing is None or any(id(part) in held for part in program.parts(each.thing))
           for each in program.of("by hand")):  # fmt: skip
        return
    if any(not is_module(each) and not is_parameter(each) for each in models) or not any(map(is_module, models)):
        return  # an image is trained, and the network is not
    reached = [part for _, loss in program.losses() for part in loss.sources if is_trained(part) or not is_layer(part)]
    if not reached or not all(program.of("step", each) for each in optimizers):
        return
    if all(loss.known for _, loss in program.losses()) and not {id(each) for each in reached} & held:
        text = f"the optimizer holds other weights than those of the loss: {program.names(reached)} are in none"
        if not any(is_excused(program, each) for each in reached) and any(map(has_weights, reached)):
            yield Fault("params-not-in-optimizer", text, optimizers[-1].line)
        return
    lost = [each for each in dict.fromkeys(reached) if id(each) not in held and is_layer(each) and has_weights(each)]
    if not lost or _ON_PURPOSE.search(program.text) or any(is_meant(program, each) for each in lost):
        return
    first = min(lost, key=lambda each: each.line)
    text = f"no optimizer holds {program.names(lost)}: these weights are never trained"
    fix = "give the optimizer the parameters of these layers, too"
    yield Fault("params-not-in-optimizer", text, first.line, fix=fix)


def is_excused(program: Program, part: Term) -> bool:
    """Whether a layer was loaded, changed by hand or given to other code."""
    return id(part) in program.excused or id(part) in program.course.fleeting


def is_meant(program: Program, part: Term) -> bool:
    """Whether it looks like weights that are to stay as they are."""
    copied = id(part) in program.course.copies
    return is_excused(program, part) or copied or KEPT_FIXED.search(program.path(part)) is not None


_OF_GRAPHS = lazy_regex(
    r"(?:torch_geometric|dgl)\.nn\.(?:\w+\.)*"
    r"(?:GCN2?|GAT(?:v2)?|SAGE|Graph|GatedGraph|Transformer|Cheb|SG|TAG|ARMA|RGCN|Rel|EGAT)(?:Conv|Graph)"
)


def _is_weighted(term: Term) -> bool:
    """Whether it has weights: a layer of torch, or one of the libraries for graphs."""
    return has_weights(term) or (term.op == "made" and _OF_GRAPHS.fullmatch(term.name) is not None)


def plain_lists(program: Program) -> Iterator[Fault]:
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
            if not parts or id(parts[0]) in registered or not any(map(_is_weighted, held_by(parts[0]))):
                continue
            used = len(re.findall(rf"self\.{name}\b", code)) > 1
            if used and not re.search(rf"(?<!self)\.{name}\b", program.text):
                kind = "dict" if isinstance(value.node, (ast.Dict, ast.DictComp)) else "list"
                words = f"self.{name} is a plain {kind} of layers: parameters() does not contain them"
                yield Fault("unregistered-module", words, value.line)


_REGISTERS = lazy_regex(r"add_module|register_module|setattr\(|def parameters|__dict__|_modules|\.parameters\(")
