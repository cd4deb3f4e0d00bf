"""Training loops by the calls that stand in them: what is cleared and stepped, what backward gets, in what order.

A fault is told only where one function shows all of it: what another function may do is no evidence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import FUNCTIONS, Course
from stayfinite.readers.configs.course.gradients import made_optimizer
from stayfinite.readers.configs.course.picking import truth
from stayfinite.readers.configs.course.terms import UNKNOWN, Term
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.formulas import wrong_formulas
from stayfinite.readers.configs.judges.losses import below_zero, doubled_sigmoids, shares_for_logs
from stayfinite.readers.configs.judges.reductions import summed_pixels
from stayfinite.readers.configs.program.names import dotted_name
from stayfinite.readers.configs.script_calls import is_optimizer

_OPTIMIZER = lazy_regex(r"(?!.*(?:option|sched|adopt))\w*(?:opt|solver)\w*", re.IGNORECASE)
_SCALED_ELSEWHERE = lazy_regex(r"scaler|scale_loss|loss_scal|accelerator|fabric|deepspeed|\bapex\b", re.IGNORECASE)
_SCALES = lazy_regex(r"\.scale\(|\.scale_loss\(")
_AVERAGES = lazy_regex(r"ema|average|swa", re.IGNORECASE)
_MICRO = lazy_regex(r"accum|micro", re.IGNORECASE)
_ADAPTIVE = lazy_regex(r"adam|rmsprop|lamb|adafactor|lion", re.IGNORECASE)
_NO_OPTIMIZER = lazy_regex(r"sched|env|lr|profil|prof\b|bar|timer|wandb|tracker|meter", re.IGNORECASE)
_NUMBERS = frozenset({"item", "detach", "numpy", "tolist"})
_MAKERS = frozenset({"tensor", "Tensor", "FloatTensor", "as_tensor", "from_numpy", "float", "Variable"})
_MAY_CALL_BACKWARD = lazy_regex(
    r"\b\w*(?:learn|update|fit|closure)\w*\(|\b(?!zero_grad|clip_grad|no_grad|enable_grad|clear_grad)\w*(?:grad|backward_)\w*\(|"
    r"\b(?:\w*_)?(?:train|optimize)(?:_\w+)?\((?!\))"
)
HOLDS_LOSS = "holds_loss"
"""Setting of an autocast whose loss goes to a plain backward: `default` or `given`, as its dtype."""


@dataclass(frozen=True, slots=True)
class _Event:
    """A call of the loop."""

    kind: str
    """`backward`, `scaled` (by a scaler or a framework), `step`, `zero`, `clip` or `unscale`."""
    name: str
    """Of the loss or the optimizer; empty if it is not a name."""
    node: ast.Call
    blocks: tuple[tuple[int, str], ...]
    """The enclosing blocks, outermost first."""
    by_scaler: bool = False
    """Whether a gradient scaler does it."""


@dataclass(slots=True)
class _Unit:
    """One function, or the module without its functions."""

    parameters: set[str]
    events: list[_Event] = field(default_factory=list)
    made: dict[str, ast.expr] = field(default_factory=dict)
    """The optimizers that it makes, by name."""
    loops: list[ast.For] = field(default_factory=list)

    def of(self, *kinds: str) -> list[_Event]:
        return [each for each in self.events if each.kind in kinds]


class Loops:
    """The training loops of one file; with ``followed``, those of these functions."""

    def __init__(self, course: Course, text: str, followed: Collection[ast.AST] | None = None) -> None:
        self._text = text
        self._course = course
        units: dict[ast.AST, _Unit] = {}
        nodes = [each for each in ast.walk(course.tree) if isinstance(each, (ast.Call, ast.Assign, ast.For))]
        for node in sorted(nodes, key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0)):
            scope = self._scope_of(node)
            if scope not in units:
                units[scope] = _Unit(_parameters(scope))
            self._take(units[scope], node)
        self._units = {scope: unit for scope, unit in units.items() if followed is None or scope in followed}
        self._zeroed = {_last(each.name) for unit in units.values() for each in unit.of("zero")}
        self._made = {_last(name): value for unit in units.values() for name, value in unit.made.items()}
        self._steps = any(unit.of("step") for unit in units.values())

    def _scope_of(self, node: ast.AST) -> ast.AST:
        return next((each for each in self._course.around(node) if isinstance(each, FUNCTIONS)), self._course.tree)

    def _take(self, unit: _Unit, node: ast.Call | ast.Assign | ast.For) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(node.value, ast.Call) and is_optimizer(dotted_name(node.value.func, {})):
                    unit.made[dotted_name(target, {})] = node.value
                if isinstance(target, ast.Attribute) and target.attr == "grad":
                    call = ast.Call(target, [], [], lineno=node.lineno)
                    unit.events.append(_Event("zero", "", call, self._blocks(node)))
        elif isinstance(node, ast.For):
            unit.loops.append(node)
        else:
            told = _kind_of(node)
            unit.events += [_Event(*told[:2], node, self._blocks(node), told[2])] if told is not None else []

    def _blocks(self, node: ast.AST) -> tuple[tuple[int, str], ...]:
        """The blocks around a node, up to its function. What a `with` holds is always reached."""
        found: list[tuple[int, str]] = []
        inner = node
        for outer in self._course.around(node):
            if isinstance(outer, FUNCTIONS):
                break
            if isinstance(inner, ast.stmt) and not isinstance(outer, (ast.With, ast.AsyncWith, ast.Module)):
                places = ("body", "orelse", "finalbody")
                found.append((id(outer), next((each for each in places if inner in getattr(outer, each, ())), "")))
            inner = outer
        return tuple(reversed(found))

    def faults(self) -> Iterator[Fault]:
        """Every fault, in the order of the functions."""
        shown = {(each.cause, each.line): each for look in _OF_VALUES for each in look(self._course)}
        yield from (each for each in shown.values() if self._holds(each.line))
        for unit in self._units.values():
            if unit.of("backward", "scaled"):
                yield from self._never_cleared(unit)
                yield from _in_wrong_order(self._course, unit)
                yield from self._never_scaled(unit)
                yield from _clipped_too_late(unit)
                yield from self._never_stepped(unit)
                yield from self._not_divided(unit)

    def _holds(self, line: int) -> bool:
        """Whether a line is in a function that counts, or outside of all functions."""
        return any(
            not isinstance(scope, FUNCTIONS) or scope.lineno <= line <= (scope.end_lineno or 0) for scope in self._units
        )

    def unscaled_autocasts(self) -> Iterator[tuple[str, str, int]]:
        """``(call, dtype, line)`` of each autocast around a loss that nothing scales; dtype is `default` or `given`."""
        told: set[int] = set()
        entered = [each for each in self._course.events if each.kind == "entered"]
        for event in entered if not _SCALED_ELSEWHERE.search(self._text) else ():
            ways = event.term.parts if event.term.op == "either" else (event.term,)
            call = next((each for each in ways if each.last == "autocast" and each.op == "call"), None)
            unit = self._units.get(self._scope_of(event.node))
            if call is None or unit is None or id(event.node) in told:
                continue
            told.add(id(event.node))
            names = {name for each in event.node.body for name in _targets(each)}
            if names & {each.name for each in unit.of("backward")}:
                yield call.name, _dtype_of(call.node), call.line

    def _never_cleared(self, unit: _Unit) -> Iterator[Fault]:
        """An optimizer that steps beside others, which alone are cleared."""
        zeros = {_last(each.name) for each in unit.of("zero") if each.name}
        cleared = {optimizer for name in self._zeroed for optimizer in self._cleared_by(name)}
        if "" in self._zeroed or not all(map(self._cleared_by, zeros)):
            return  # whatever that clears
        here = {optimizer for name in zeros for optimizer in self._cleared_by(name)}
        steps = {each.name: each for each in reversed(unit.of("step")) if each.name}
        for name, event in steps.items():
            own = name.partition(".")[0] not in unit.parameters or _last(name) in self._made
            if own and _last(name) not in cleared and here & set(map(_last, steps)):
                text = f"{name}.step() without {name}.zero_grad()"
                yield Fault("no-zero-grad", text, event.node.lineno, mild=self._adapts(name))

    def _cleared_by(self, name: str) -> set[str]:
        """The optimizers that `name.zero_grad()` clears: itself, or those that were made of this model."""
        if _OPTIMIZER.fullmatch(name):
            return {name}
        made = self._made.items()
        return {optimizer for optimizer, value in made if re.search(rf"\b{re.escape(name)}\.", ast.unparse(value))}

    def _never_scaled(self, unit: _Unit) -> Iterator[Fault]:
        """`scaler.step(optimizer)` after a plain `loss.backward()`, where nothing calls `scaler.scale()`."""
        steps = [each for each in unit.of("step") if each.by_scaler and "scaler" in ast.unparse(each.node).lower()]
        made = any(each.op == "made" and each.last == "GradScaler" for each in self._course.terms)
        if made and steps and unit.of("backward") and not _SCALES.search(self._text) and not self._scales_nothing():
            text = "scaler.step() without scaler.scale(loss): torch refuses the first step"
            yield Fault("scaler-missing", text, steps[0].node.lineno, fix="scaler.scale(loss).backward()")

    def _scales_nothing(self) -> bool:
        """Whether every scaler is switched off: `GradScaler(enabled=False)`."""
        made = [each for each in self._course.terms if each.op == "made" and each.last == "GradScaler"]
        return bool(made) and all(truth(each.keywords.get("enabled", UNKNOWN)) is False for each in made)

    def _never_stepped(self, unit: _Unit) -> Iterator[Fault]:
        """An optimizer is made and cleared, and never takes a step."""
        looped = [each for each in unit.of("backward") if each.blocks]
        for name in unit.made if looped and not self._steps else ():
            used = re.escape(name)
            if not re.search(rf"\b{used}\.step|(?:step|train|update|fit|run|loop)\w*\([^)]*\b{used}\b", self._text):
                text = f"backward() is called, and {name}.step() never is"
                yield Fault("step-missing", text, looped[0].node.lineno)

    def _not_divided(self, unit: _Unit) -> Iterator[Fault]:
        """Micro batches whose losses are summed up: `for micro_step in range(accumulation): loss.backward()`."""
        for loop in unit.loops:
            count, body = ast.unparse(loop.iter), "\n".join(map(ast.unparse, loop.body))
            inside = [each for each in unit.events if (id(loop), "body") in each.blocks]
            after = [each for each in unit.of("step") if each.blocks == self._blocks(loop)]
            plain = [each for each in inside if each.kind == "backward"]
            multiplied = any(isinstance(each, ast.Mult) for one in loop.body for each in ast.walk(one))
            micro = re.match(r"(?:\w+\.)*range\(", count) and _MICRO.search(count)
            if micro and plain and after and len(plain) == len(inside) and not multiplied and "/" not in body:
                yield Fault(
                    "accumulation-unscaled", f"the losses of all passes of {count} are summed, and never divided",
                    plain[0].node.lineno, sure=False, mild=self._adapts(after[0].name),
                )  # fmt: skip

    def _adapts(self, optimizer: str) -> bool:
        """Whether the optimizer's steps stay bounded by the rate, whatever the gradient's size."""
        made = self._made.get(_last(optimizer))
        return _ADAPTIVE.search(self._text if made is None else ast.unparse(made)) is not None


def _in_wrong_order(course: Course, unit: _Unit) -> Iterator[Fault]:
    """backward, zero_grad and step in one block, in this order; a loop that steps before backward."""
    stepped: set[str] = set()
    calls = [each for each in unit.events if each.kind not in ("clip", "unscale")]
    for before, (event, after) in zip(calls, pairwise(calls[1:]), strict=False):
        stepped |= {before.name} if before.kind == "step" else set()
        same = before.blocks == event.blocks == after.blocks and (event.kind, after.kind) == ("zero", "step")
        named = event.name and _OPTIMIZER.fullmatch(_last(event.name)) and after.name == event.name
        if same and named and before.kind in ("backward", "scaled") and event.name not in stepped:
            text = f"{event.name}.zero_grad() is called between backward and step: the step finds no gradient"
            yield Fault("cleared-before-step", text, event.node.lineno)
    kinds = ["backward" if each.kind == "scaled" else each.kind for each in calls]
    if kinds not in (["zero", "step", "backward"], ["step", "backward", "zero"]):
        return
    names = {each.name for each in calls if each.kind in ("zero", "step")}
    loops = [each for each in course.around(calls[0].node) if isinstance(each, (ast.For, ast.AsyncFor, ast.While))]
    inside = bool(loops) and calls[0].blocks[-1:] == ((id(loops[0]), "body"),)
    if not inside or len({each.blocks for each in calls}) > 1 or len(names) > 1:
        return
    name, step = names.pop(), calls[kinds.index("step")]
    hidden = any(_MAY_CALL_BACKWARD.search(ast.unparse(each)) for each in loops[0].body)
    given = step.node.args or step.node.keywords  # a closure calls backward itself
    if _OPTIMIZER.fullmatch(_last(name)) and not given and not hidden:
        text = f"{name}.step() comes after zero_grad and before backward: it finds no gradient"
        yield Fault("cleared-before-step", text, step.node.lineno)


def _clipped_too_late(unit: _Unit) -> Iterator[Fault]:
    """Gradients that are clipped after the step, and cleared before the next backward."""
    calls = [each for each in unit.events if each.kind != "unscale"]
    kinds = ["backward" if each.kind == "scaled" else each.kind for each in calls]
    if kinds in _LATE and calls[0].blocks and len({each.blocks for each in calls}) == 1:
        text = "the gradients are clipped after the step: no step is ever clipped"
        late = calls[kinds.index("clip")]
        yield Fault("no-clipping", text, late.node.lineno, fix="clip between backward() and step()")


_LATE = (
    ["zero", "backward", "step", "clip"], ["backward", "step", "clip", "zero"], ["backward", "step", "zero", "clip"],
)  # fmt: skip


def _detached(course: Course) -> Iterator[Fault]:
    """The loss that backward gets was made from a number: `loss = torch.tensor(loss.item(), requires_grad=True)`."""
    for event in course.events:
        loss = event.term
        if event.kind != "backward":
            continue
        if loss.op == "method" and loss.name == "scale" and len(loss.parts) > 1:
            loss = loss.parts[1]
        if _is_number(loss) and isinstance(loss.node, ast.AST):
            text = f"{ast.unparse(loss.node)[:100]} has no graph, so backward() reaches no parameter"
            yield Fault("detached-loss", text, loss.line)


def _is_number(term: Term) -> bool:
    """Whether a value has no graph: `x.item()`, `x.detach()`, `torch.tensor(x.item())`."""
    if term.op == "attribute":
        return term.name == "data"
    if term.op == "method" and term.name in ("requires_grad_", "to", "cuda", "float"):
        return _is_number(term.parts[0])
    if term.op == "method":
        return term.name in _NUMBERS and len(term.parts) == 1
    given = term.parts[0] if term.op in ("call", "made") and term.last in _MAKERS and term.parts else None
    if given is None or not (term.last == term.name or term.name.startswith(("torch.", "autograd."))):
        return False
    # `Variable(loss)` and `torch.tensor(0.0, requires_grad=True)` to begin a sum are no cut.
    computed = given.op not in ("const", "row", "binary", "unary")
    return _is_number(given) or (term.last in ("tensor", "FloatTensor", "float") and computed)


def _clipped_while_scaled(course: Course) -> Iterator[Fault]:
    """A scaled backward, clipping, and nothing unscaled between them; the scaler's step comes later."""
    scaler, clipped, unscales = "", None, "unscale" in course.code
    for event in course.events:
        call = event.result
        if call.last == "backward":
            scaler, clipped = _scaler_of(event.term), None
        elif "unscale" in call.last or (event.kind == "foreign" and scaler in map(_written, call.parts[1:])):
            scaler = scaler if clipped is not None else ""
        elif call.last.startswith("clip_grad") and scaler:
            clipped = clipped or event
        elif call.last == "step" and clipped is not None and _receiver(call) == scaler:
            late = "the gradients are clipped before unscaling" if unscales else ""
            given = next((each for each in call.parts if made_optimizer(each)), None)
            adapts = _ADAPTIVE.search(given.last if given is not None else course.code) is not None
            text = late or "scaled gradients are clipped and never unscaled"
            yield Fault("clip-before-unscale", text, clipped.node.lineno, mild=adapts)
            clipped = None


def _scaler_of(loss: Term) -> str:
    """`scaler` of `scaler.scale(loss)`, unless it is switched off."""
    if loss.op not in ("call", "method") or loss.last != "scale" or not _receiver(loss):
        return ""
    made = loss.parts[0] if loss.op == "method" else UNKNOWN
    off = made.op == "made" and truth(made.keywords.get("enabled", UNKNOWN)) is False
    return "" if off else _receiver(loss)


def _receiver(call: Term) -> str:
    """The object that a method is called on, as it is written."""
    function = call.node.func if isinstance(call.node, ast.Call) else None
    return ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""


def _written(term: Term) -> str:
    return ast.unparse(term.node) if isinstance(term.node, ast.expr) else ""


_OF_VALUES = (
    _detached, doubled_sigmoids, shares_for_logs, below_zero, wrong_formulas, summed_pixels, _clipped_while_scaled,
)  # fmt: skip


def _parameters(scope: ast.AST) -> set[str]:
    given = scope.args if isinstance(scope, FUNCTIONS) else None
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs) if given is not None else ()
    return {each.arg for each in every} - {"self"}


def _kind_of(call: ast.Call) -> tuple[str, str, bool] | None:
    """``(kind, name, by a scaler)`` of a call that matters."""
    if not isinstance(call.func, ast.Attribute):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        words = (("zero_grad", "zero"), ("clear_grad", "zero"), ("clip_grad", "clip"), ("unscale", "unscale"))
        return next(((kind, "", False) for word, kind in words if word in name), None)
    last, owner = call.func.attr, call.func.value
    name = dotted_name(owner, {})
    given = dotted_name(call.args[0], {}) if call.args and isinstance(call.args[0], (ast.Name, ast.Attribute)) else ""
    scaler = "scaler" in _last(name).lower()
    if last in ("backward", "manual_backward"):
        if isinstance(owner, ast.Call):  # scaler.scale(loss).backward()
            inner = owner.args[0] if owner.args else None
            scaled = _last(name) == "scale"
            plain = scaled and isinstance(inner, (ast.Name, ast.Attribute))
            return ("scaled" if scaled else "backward", dotted_name(inner, {}) if plain and inner else "", scaled)
        by_other = last == "manual_backward" or given
        plain = isinstance(owner, (ast.Name, ast.Attribute))
        return ("scaled" if by_other else "backward", given if by_other else name if plain else "", False)
    if last.startswith("step"):
        if scaler or _last(name) in ("accelerator", "fabric"):
            return "step", given, scaler
        if _OPTIMIZER.fullmatch(_last(name)) or (last != "step" and not _AVERAGES.search(name)):
            return "step", name, False
        return None if _NO_OPTIMIZER.search(name) else ("step", "", False)  # an engine's own, perhaps
    if "unscale" in last:
        return "unscale", given, False
    if last.startswith("clip_grad") and _last(name) not in ("accelerator", "fabric", "self"):
        return "clip", given, False
    if "zero_grad" in last or "clear_grad" in last or (last == "zero_" and ".grad" in ast.unparse(owner)):
        return "zero", name if isinstance(owner, (ast.Name, ast.Attribute)) else "", False
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


def _last(name: str) -> str:
    return name.rpartition(".")[2]
