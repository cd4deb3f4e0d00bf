"""Read training loops by their syntax tree: what is cleared and stepped, what backward gets, and in what order.

A fault is told only where one function shows all of it: what another function may do is no evidence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.loss_inputs import losses_with_sigmoid, roots_below_zero, sigmoids_twice
from stayfinite.readers.configs.program.names import dotted_name
from stayfinite.readers.configs.script_calls import is_optimizer

_OPTIMIZER = lazy_regex(r"(?!.*(?:option|sched|adopt))\w*(?:opt|solver)\w*", re.IGNORECASE)
_SCALED_ELSEWHERE = lazy_regex(r"scaler|scale_loss|loss_scal|accelerator|fabric|deepspeed|\bapex\b", re.IGNORECASE)
_AVERAGES = lazy_regex(r"ema|average|swa", re.IGNORECASE)
_MICRO = lazy_regex(r"accum|micro", re.IGNORECASE)
_ADAPTIVE = lazy_regex(r"adam|rmsprop|lamb|adafactor|lion", re.IGNORECASE)
_NUMBERS = frozenset({"item", "detach", "numpy", "tolist"})
_MAKERS = frozenset({"tensor", "Tensor", "FloatTensor", "as_tensor", "from_numpy", "float", "Variable"})
_MAY_CALL_BACKWARD = lazy_regex(
    r"\b\w*(?:learn|update|fit|closure)\w*\(|\b(?!zero_grad|clip_grad|no_grad|enable_grad|clear_grad)\w*(?:grad|backward_)\w*\(|"
    r"\b(?:\w*_)?(?:train|optimize)(?:_\w+)?\((?!\))"
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_NODES = 20_000
HOLDS_LOSS = "holds_loss"
"""Setting of an autocast whose loss goes to a plain backward: `default` or `given`, as its dtype."""


@dataclass(frozen=True, slots=True)
class LoopFault:
    """A fault of a loop, where it is, and whether training survives it."""

    cause: str
    text: str
    line: int
    sure: bool = True
    mild: bool = False


@dataclass(slots=True)
class _Event:
    """A call of the loop."""

    kind: str
    """`backward`, `scaled` (by a scaler or a framework), `step`, `zero`, `clip` or `unscale`."""
    name: str
    """Of the loss or the optimizer; empty if it is not a name."""
    node: ast.Call
    blocks: tuple[int, ...]
    """The enclosing blocks, outermost first."""
    by_scaler: bool = False
    """Whether a gradient scaler does it."""


@dataclass(slots=True)
class _Unit:
    """One function, or the module without its functions."""

    body: list[ast.stmt]
    parameters: set[str] = field(default_factory=set)
    events: list[_Event] = field(default_factory=list)
    assigned: list[tuple[str, ast.expr, tuple[int, ...], int]] = field(default_factory=list)
    """``(name, value, blocks, line)`` of every assignment."""
    statements: list[tuple[ast.stmt, tuple[int, ...]]] = field(default_factory=list)

    def named(self, kind: str) -> dict[str, _Event]:
        """The first event of a kind by name."""
        found: dict[str, _Event] = {}
        for each in self.events:
            if each.kind == kind and each.name:
                found.setdefault(each.name, each)
        return found


class Loops:
    """The training loops of one file."""

    def __init__(self, tree: ast.Module, text: str, followed: set[ast.AST] | None = None) -> None:
        self._text = text
        functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
        wanted = functions if followed is None else [node for node in functions if node in followed]
        self._units = [_unit(node.body, node.args) for node in wanted]
        if followed is None:
            self._units.append(_unit(tree.body, None))
        whole = self._units if followed is None else [_unit(node.body, node.args) for node in functions]
        self._zeroed = {_last(each.name) for unit in whole for each in unit.events if each.kind == "zero"}
        self._made = {_last(name): value for unit in whole for name, value, *_ in unit.assigned if _makes(value)}
        self._with_sigmoid = losses_with_sigmoid([each for unit in whole for each in unit.assigned])
        self._steps = any(each.kind == "step" for unit in whole for each in unit.events)

    def faults(self) -> Iterator[LoopFault]:
        """Every fault, in the order of the functions."""
        for unit in self._units:
            if any(each.kind in ("backward", "scaled") for each in unit.events):
                yield from self._never_cleared(unit)
                yield from self._cleared_too_soon(unit)
                yield from _in_wrong_order(unit)
                yield from self._impossible_values(unit)
                yield from self._clipped_while_scaled(unit)
                yield from _detached(unit)
                yield from self._never_stepped(unit)
                yield from self._not_divided(unit)

    def unscaled_autocasts(self) -> Iterator[tuple[str, str, int]]:
        """``(call, dtype, line)`` of each autocast around a loss that nothing scales; dtype is `default` or `given`."""
        if _SCALED_ELSEWHERE.search(self._text):
            return
        made = {name: value for unit in self._units for name, value, *_ in unit.assigned}
        for unit in self._units:
            learned = {each.name for each in unit.events if each.kind == "backward"}
            for statement, _ in unit.statements:
                if not isinstance(statement, ast.With):
                    continue
                names = {name for each in statement.body for name in _targets(each)}
                for item in statement.items:
                    call = _autocast(item.context_expr, made)
                    if call is not None and names & learned:
                        yield dotted_name(call.func, {}), _dtype_of(call), call.lineno

    def _never_cleared(self, unit: _Unit) -> Iterator[LoopFault]:
        """An optimizer that steps beside others, which alone are cleared."""
        steps, zeros = unit.named("step"), {_last(name) for name in unit.named("zero")}
        cleared = {optimizer for name in self._zeroed for optimizer in self._cleared_by(name)}
        if "" in self._zeroed or not all(map(self._cleared_by, zeros)):
            return  # whatever that clears
        here = {optimizer for name in zeros for optimizer in self._cleared_by(name)}
        for name, event in steps.items():
            own = name.partition(".")[0] not in unit.parameters or _last(name) in self._made
            if own and _last(name) not in cleared and here & set(map(_last, steps)):
                text = f"{name}.step() without {name}.zero_grad()"
                yield LoopFault("no-zero-grad", text, event.node.lineno, mild=self._adapts(name))

    def _cleared_by(self, name: str) -> set[str]:
        """The optimizers that `name.zero_grad()` clears: itself, or those that were made of this model."""
        if _OPTIMIZER.fullmatch(name):
            return {name}
        made = self._made.items()
        return {optimizer for optimizer, value in made if re.search(rf"\b{re.escape(name)}\.", ast.unparse(value))}

    def _cleared_too_soon(self, unit: _Unit) -> Iterator[LoopFault]:
        """backward, zero_grad and step in one block, in this order."""
        for place, event in enumerate(unit.events[1:-1], 1):
            if event.kind != "zero" or not event.name or not _OPTIMIZER.fullmatch(_last(event.name)):
                continue
            before, after = unit.events[place - 1], unit.events[place + 1]
            same = before.blocks == event.blocks == after.blocks and after.kind == "step" and after.name == event.name
            earlier = any(each.kind == "step" and each.name == event.name for each in unit.events[:place])
            if same and before.kind in ("backward", "scaled") and not earlier:
                text = f"{event.name}.zero_grad() is called between backward and step: the step finds no gradient"
                yield LoopFault("cleared-before-step", text, event.node.lineno)

    def _impossible_values(self, unit: _Unit) -> Iterator[LoopFault]:
        """What goes into the loss cannot be right."""
        for text, line in sigmoids_twice(unit.statements, unit.assigned, self._with_sigmoid):
            yield LoopFault("softmax-before-cross-entropy", text, line)
        for text, line in roots_below_zero(unit.statements):
            yield LoopFault("loss-formula-singularity", text, line)

    def _clipped_while_scaled(self, unit: _Unit) -> Iterator[LoopFault]:
        """A scaled backward, clipping, and nothing unscaled between them; the scaler's step comes later."""
        scaled, unscaled = False, None
        for event in unit.events:
            if event.kind in ("backward", "scaled"):
                scaled, unscaled = event.by_scaler, None
            elif event.kind == "unscale":
                unscaled = event
            elif event.kind == "clip" and scaled and unscaled is None:
                steps = [each for each in unit.events if each.kind == "step" and each.by_scaler]
                late = any(each.kind == "unscale" for each in unit.events)
                text = "the gradients are clipped before unscaling" if late else (
                    "scaled gradients are clipped and never unscaled"
                )  # fmt: skip
                if steps:
                    mild = self._adapts(steps[0].name)
                    yield LoopFault("clip-before-unscale", text, event.node.lineno, mild=mild)
                    return

    def _never_stepped(self, unit: _Unit) -> Iterator[LoopFault]:
        """An optimizer is made and cleared, and never takes a step."""
        made = {name: value for name, value, *_ in unit.assigned if _makes(value)}
        looped = [each for each in unit.events if each.kind == "backward" and len(each.blocks) > 1]
        if self._steps or not looped or not made:
            return
        for name in made:
            used = re.escape(name)
            if not re.search(rf"\b{used}\.step|(?:step|train|update|fit|run|loop)\w*\([^)]*\b{used}\b", self._text):
                text = f"backward() is called, and {name}.step() never is"
                yield LoopFault("step-missing", text, looped[0].node.lineno)

    def _not_divided(self, unit: _Unit) -> Iterator[LoopFault]:
        """Micro batches whose losses are summed up: `for micro_step in range(accumulation): loss.backward()`."""
        for statement, blocks in unit.statements:
            if not isinstance(statement, ast.For) or not isinstance(statement.iter, ast.Call):
                continue
            count = ast.unparse(statement.iter)
            inside = [each for each in unit.events if id(statement.body) in each.blocks]
            after = [each for each in unit.events if each.kind == "step" and each.blocks == blocks]
            body = "\n".join(map(ast.unparse, statement.body))
            divided = any(
                isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.Div, ast.Mult))
                for each in statement.body for node in ast.walk(each)
            )  # fmt: skip
            micro = _last(dotted_name(statement.iter.func, {})) == "range" and _MICRO.search(count)
            plain = [each for each in inside if each.kind == "backward"]
            if micro and plain and after and len(plain) == len(inside) and not divided and "/" not in body:
                yield LoopFault(
                    "accumulation-unscaled", f"the losses of all passes of {count} are summed, and never divided",
                    plain[0].node.lineno, sure=False, mild=self._adapts(after[0].name),
                )  # fmt: skip

    def _adapts(self, optimizer: str) -> bool:
        """Whether the optimizer's steps stay bounded by the rate, whatever the gradient's size."""
        made = self._made.get(_last(optimizer))
        return _ADAPTIVE.search(self._text if made is None else ast.unparse(made)) is not None


def _in_wrong_order(unit: _Unit) -> Iterator[LoopFault]:
    """A loop that steps before backward, and clears what backward left: `zero_grad, step, backward`."""
    bodies = {id(each.body) for each, _ in unit.statements if isinstance(each, (ast.For, ast.AsyncFor, ast.While))}
    calls = [each for each in unit.events if each.kind not in ("clip", "unscale")]
    kinds = ["backward" if each.kind == "scaled" else each.kind for each in calls]
    if kinds not in (["zero", "step", "backward"], ["step", "backward", "zero"]):
        return
    names = {each.name for each in calls if each.kind in ("zero", "step")}
    if len({each.blocks for each in calls}) == 1 and len(names) == 1 and calls[0].blocks[-1] in bodies and all(names):
        name, step = names.pop(), calls[kinds.index("step")]
        inside = [each for each, blocks in unit.statements if blocks == calls[0].blocks]
        hidden = any(_MAY_CALL_BACKWARD.search(ast.unparse(each)) for each in inside)
        given = step.node.args or step.node.keywords  # a closure calls backward itself
        if _OPTIMIZER.fullmatch(_last(name)) and not given and not hidden:
            text = f"{name}.step() comes after zero_grad and before backward: it finds no gradient"
            yield LoopFault("cleared-before-step", text, step.node.lineno)


def _detached(unit: _Unit) -> Iterator[LoopFault]:
    """The loss that backward gets was made from a number: `loss = torch.tensor(loss.item(), requires_grad=True)`."""
    for event in unit.events:
        if event.kind not in ("backward", "scaled") or not event.name:
            continue
        before = [
            (value, line)
            for name, value, blocks, line in unit.assigned
            if name == event.name and line < event.node.lineno and blocks == event.blocks[: len(blocks)]
        ]
        if before and _is_number(before[-1][0]):
            text = f"{event.name} = {ast.unparse(before[-1][0])[:100]} has no graph, so backward() reaches no parameter"
            yield LoopFault("detached-loss", text, before[-1][1])


def _is_number(value: ast.expr) -> bool:
    """Whether an expression has no graph: `x.item()`, `x.detach()`, `torch.tensor(x.item())`."""
    if isinstance(value, ast.Attribute):
        return value.attr == "data"
    if not isinstance(value, ast.Call):
        return False
    last = _last(dotted_name(value.func, {}))
    if isinstance(value.func, ast.Attribute) and last in _NUMBERS and not value.args:
        return True
    if isinstance(value.func, ast.Attribute) and last in ("requires_grad_", "to", "cuda", "float"):
        return _is_number(value.func.value)
    of_tensors = isinstance(value.func, ast.Name) or dotted_name(value.func, {}).startswith(("torch.", "autograd."))
    given = value.args[0] if value.args else None
    if not of_tensors or last not in _MAKERS or given is None:
        return False
    # `Variable(loss)` and `torch.tensor(0.0, requires_grad=True)` to begin a sum are no cut.
    return _is_number(given) or (last in ("tensor", "FloatTensor", "float") and isinstance(given, (ast.Name, ast.Call)))


def _unit(body: list[ast.stmt], arguments: ast.arguments | None) -> _Unit:
    unit = _Unit(body)
    if arguments is not None:
        unit.parameters = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        unit.parameters.discard("self")
    _take_block(unit, body, ())
    return unit


def _take_block(unit: _Unit, body: list[ast.stmt], blocks: tuple[int, ...]) -> None:
    if len(blocks) > 40 or len(unit.statements) > _MOST_NODES:
        return
    blocks = (*blocks, id(body))
    for statement in body:
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            continue
        unit.statements.append((statement, blocks))
        for part in ast.iter_child_nodes(statement):
            if isinstance(part, (ast.expr, ast.withitem)):
                for node in ast.walk(part):
                    if isinstance(node, ast.Call):
                        _take_call(unit, node, blocks)
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                unit.assigned.append((dotted_name(target, {}), statement.value, blocks, statement.lineno))
                if isinstance(target, ast.Attribute) and target.attr == "grad":
                    unit.events.append(_Event("zero", "", ast.Call(target, [], [], lineno=statement.lineno), blocks))
        elif isinstance(statement, ast.AugAssign):
            unit.assigned.append((dotted_name(statement.target, {}), statement.value, blocks, statement.lineno))
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list) and inner:
                # What a `with` holds is always reached.
                _take_block(unit, inner, blocks[:-1] if isinstance(statement, (ast.With, ast.AsyncWith)) else blocks)
        for handler in getattr(statement, "handlers", ()):
            _take_block(unit, handler.body, blocks)


def _take_call(unit: _Unit, call: ast.Call, blocks: tuple[int, ...]) -> None:
    if not isinstance(call.func, ast.Attribute):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        for kind, words in (("zero", ("zero_grad", "clear_grad")), ("clip", ("clip_grad",)), ("unscale", ("unscale",))):
            if any(word in name for word in words):
                unit.events.append(_Event(kind, "", call, blocks))
        return
    last, owner = call.func.attr, call.func.value
    given = dotted_name(call.args[0], {}) if call.args and isinstance(call.args[0], (ast.Name, ast.Attribute)) else ""
    if last in ("backward", "manual_backward"):
        if isinstance(owner, ast.Call):  # scaler.scale(loss).backward()
            inner = owner.args[0] if owner.args else None
            name = dotted_name(inner, {}) if isinstance(inner, (ast.Name, ast.Attribute)) else ""
            scaled = _last(dotted_name(owner.func, {})) == "scale"
            kind, name = ("scaled", name) if scaled else ("backward", "")
            unit.events.append(_Event(kind, name, call, blocks, scaled))
        else:
            by_other = last == "manual_backward" or given
            name = given if by_other else dotted_name(owner, {}) if isinstance(owner, (ast.Name, ast.Attribute)) else ""
            unit.events.append(_Event("scaled" if by_other else "backward", name, call, blocks))
    elif last.startswith("step"):
        name = dotted_name(owner, {})
        if "scaler" in _last(name).lower() or _last(name) in ("accelerator", "fabric"):
            unit.events.append(_Event("step", given, call, blocks, "scaler" in _last(name).lower()))
        elif _OPTIMIZER.fullmatch(_last(name)) or (last != "step" and not _AVERAGES.search(name)):
            unit.events.append(_Event("step", name, call, blocks))
        elif not re.search(r"sched|env|lr|profil|prof\b|bar|timer|wandb|tracker|meter", name, re.IGNORECASE):
            unit.events.append(_Event("step", "", call, blocks))  # an engine's own, perhaps
    elif "unscale" in last:
        unit.events.append(_Event("unscale", given, call, blocks))
    elif last.startswith("clip_grad") and _last(dotted_name(owner, {})) not in ("accelerator", "fabric", "self"):
        unit.events.append(_Event("clip", given, call, blocks))
    elif "zero_grad" in last or "clear_grad" in last or (last == "zero_" and ".grad" in ast.unparse(owner)):
        name = dotted_name(owner, {})
        unit.events.append(_Event("zero", name if isinstance(owner, (ast.Name, ast.Attribute)) else "", call, blocks))


def _autocast(value: ast.expr, made: dict[str, ast.expr]) -> ast.Call | None:
    """The autocast that a `with` enters, also by a name: `ctx = nullcontext() if cpu else autocast(...)`."""
    if isinstance(value, ast.Name):
        value = made.get(value.id, value)
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and _last(dotted_name(node.func, {})) == "autocast":
            return node
    return None


def _dtype_of(call: ast.Call) -> str:
    """Whether an autocast is given its dtype; `torch.autocast("cuda")` alone is fp16 on a GPU, and off on the CPU."""
    told = {each.arg: each.value for each in call.keywords}
    off = told.get("enabled") or (call.args[0] if call.args and isinstance(call.args[0], ast.Constant) else None)
    if isinstance(off, ast.Constant) and off.value in (False, "cpu"):
        return "given"
    return "given" if "dtype" in told or None in told or len(call.args) > 1 else "default"


def _targets(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for each in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                    yield dotted_name(each, {})


def _makes(value: ast.expr) -> bool:
    """Whether an expression makes an optimizer."""
    return isinstance(value, ast.Call) and is_optimizer(dotted_name(value.func, {}))


def _last(name: str) -> str:
    return name.rpartition(".")[2]
