"""What the optimizers hold against what backward reaches: layers that nobody trains, losses without a graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
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


def plain_lists(tree: ast.Module, text: str) -> Iterator[Found]:
    """Layers with weights in a plain list or dict of a module, which no parameters() contains."""
    owners = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and _is_module(each)]
    own = {each.name: ast.unparse(each) for each in owners}
    weighted = {name for name, code in own.items() if _LAYER_MADE.search(code)}
    for owner in owners:
        code = own[owner.name]
        if _REGISTERS.search(code):
            continue
        for node in (each for each in ast.walk(owner) if isinstance(each, ast.Assign)):
            name, made = ast.unparse(node.targets[0]), _first_made(node.value)
            if not name.startswith("self.") or made is None or not (_WEIGHTED.fullmatch(made) or made in weighted):
                continue
            again = re.search(rf"(?:ModuleList|ModuleDict|Sequential)\(\*?{re.escape(name)}\b", code)
            outside = re.search(rf"(?<!self)\.{re.escape(name[5:])}\b", text)
            used = len(re.findall(rf"{re.escape(name)}\b", code)) > 1
            if used and not again and not outside:
                words = f"{name} is a plain {_kind(node.value)} of layers: parameters() does not contain them"
                yield "unregistered-module", words, node.lineno, False


def _is_module(owner: ast.ClassDef) -> bool:
    return "Module" in {ast.unparse(each).rpartition(".")[2] for each in owner.bases}


_REGISTERS = lazy_regex(r"add_module|register_module|setattr\(|def parameters|__dict__|_modules|\.parameters\(")
_LAYER_MADE = lazy_regex(r"\bnn\.(?:Linear|Conv[123]d|LSTM|GRU|Embedding|Parameter)\(")
_WEIGHTED = lazy_regex(r"(?:nn\.|torch\.nn\.)?(?:Linear|Conv[123]d|ConvTranspose[123]d|LSTM|GRU|Embedding|LSTMCell|"
                       r"GRUCell|TransformerEncoderLayer|MultiheadAttention|Bilinear)")  # fmt: skip


def _first_made(value: ast.expr) -> str | None:
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("list", "tuple", "dict") and value.args:
        value = value.args[0]
    element: ast.expr | None = None
    if isinstance(value, (ast.List, ast.Tuple)):
        element = value.elts[0] if value.elts else None
    elif isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        element = value.elt
    elif isinstance(value, ast.Dict):
        element = value.values[0] if value.values else None
    elif isinstance(value, ast.DictComp):
        element = value.value
    while (
        isinstance(element, ast.Call)
        and isinstance(element.func, ast.Attribute)
        and element.func.attr in ("to", "cuda")
    ):
        element = element.func.value
    return ast.unparse(element.func) if isinstance(element, ast.Call) else None


def _kind(value: ast.expr) -> str:
    return "dict" if isinstance(value, (ast.Dict, ast.DictComp)) else "list"
