"""What the optimizers hold against what backward reaches: layers that nobody trains, losses without a graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.updates.program import Program
from stayfinite.readers.configs.updates.stepping import Found
from stayfinite.readers.configs.updates.things import Tensor, Thing

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
    alive |= {id(event.node) for event in program.of("backward") if not isinstance(event.tensor, Tensor)}
    for event, loss in program.losses():
        if id(event.node) not in alive and loss.known and not loss.sources and loss.seen and event.loops:
            names = ", ".join(sorted({program.path(each) for each in loss.seen})[:3])
            text = f"the loss has no graph, so backward() reaches no weight of {names}"
            yield "detached-loss", text, getattr(event.node, "lineno", 0), False
            return


def cut_off(program: Program) -> Iterator[Found]:
    """Layers that an optimizer holds, whose output reaches the loss, but only without its graph."""
    losses = [loss for _, loss in program.losses()]
    if len(losses) != len(program.of("backward")) or not all(each.known for each in losses):
        return
    if any(each.held is None for each in program.optimizers) or _ON_PURPOSE.search(program.text):
        return
    reached = {part for loss in losses for part in loss.sources}
    if not reached:
        return
    held = {part for each in program.optimizers if program.of("step", each) for part in program.leaves(each)}
    seen = {part for loss in losses for part in loss.seen}
    lost = [each for each in held if each in seen - reached and each.has_weights and not each.excused]
    if lost and not any(_FIXED.search(program.path(each)) for each in lost):
        first = min(lost, key=lambda each: getattr(each.node, "lineno", 0))
        names = ", ".join(sorted({program.path(each) for each in lost})[:3])
        text = f"no gradient reaches {names}: the graph ends between its output and the loss"
        yield "detached-loss", text, getattr(first.node, "lineno", 0), False


def held_by_nobody(program: Program) -> Iterator[Found]:
    """Layers that backward reaches and no optimizer holds."""
    optimizers = program.optimizers
    if not optimizers or any(each.held is None for each in optimizers) or not program.all_traced("step"):
        return
    if any(each.kind == "by hand" for each in program.events):
        return
    held = {part for each in optimizers for part in program.leaves(each)}
    if any(each.is_input for each in held) or not any(each.kind == "module" for each in held):
        return  # an image is trained, and the network is not
    reached = [part for _, loss in program.losses() for part in loss.sources if part.is_trained]
    if not reached or not all(program.of("step", each) for each in optimizers):
        return
    if all(loss.known for _, loss in program.losses()) and not set(reached) & held:
        first = optimizers[-1]
        texts = ", ".join(sorted({program.path(each) for each in reached})[:3])
        text = f"the optimizer holds other weights than those of the loss: {texts} are in none"
        if not any(each.excused for each in reached) and any(each.has_weights for each in reached):
            yield "params-not-in-optimizer", text, getattr(first.node, "lineno", 0), False
        return
    lost = [each for each in dict.fromkeys(reached) if each not in held and each.has_weights and each.kind == "module"]
    if not lost or _ON_PURPOSE.search(program.text) or any(_is_meant(program, each) for each in lost):
        return
    first = min(lost, key=lambda each: getattr(each.node, "lineno", 0))
    names = ", ".join(sorted({program.path(each) for each in lost})[:3])
    text = f"no optimizer holds {names}: these weights are never trained"
    yield "params-not-in-optimizer", text, getattr(first.node, "lineno", 0), False


def _is_meant(program: Program, part: Thing) -> bool:
    """Whether it looks like weights that are to stay as they are."""
    return part.excused or part.copied or part.frozen or _FIXED.search(program.path(part)) is not None


def all_frozen(program: Program) -> Iterator[Found]:
    """An optimizer all of whose weights are frozen."""
    for optimizer in program.optimizers:
        if optimizer.stepped_frozen and optimizer.held and not optimizer.excused:
            name = optimizer.name or "the optimizer"
            text = f"every weight that {name} holds has requires_grad = False"
            yield "params-frozen", text, getattr(optimizer.node, "lineno", 0), False


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
