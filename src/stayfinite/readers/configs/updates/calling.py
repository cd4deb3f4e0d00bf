"""What calls do: models are made and called, optimizers built and stepped, functions of the script entered."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.program.names import dotted_name
from stayfinite.readers.configs.script_calls import is_optimizer
from stayfinite.readers.configs.updates.things import (
    Class,
    Frame,
    Function,
    Tensor,
    Thing,
    Value,
    cut,
    mixed,
    parts_of,
)

if TYPE_CHECKING:
    from stayfinite.readers.configs.updates.following import Follower

_DEEPEST = 14
_MOST_CALLS = 3_000
_MOST_SPREAD = 12
_SCHEDULE = lazy_regex(r"\w+LR|CosineAnnealingWarmRestarts|ReduceLROnPlateau|get_\w*schedule\w*")
_CUT = frozenset({
    "item", "detach", "detach_", "numpy", "tolist", "argmax", "argmin", "argsort", "eq", "ne", "gt", "lt", "ge", "le", "long",
    "int", "bool", "size", "dim", "numel", "isnan", "isfinite", "multinomial", "bernoulli", "one_hot", "is_cuda",
})  # fmt: skip
"""Methods and functions whose result has no graph."""
_OF_NUMBERS = frozenset({"int", "float", "bool", "len", "str", "round", "print", "range", "isinstance", "type"})
_SAME = frozenset({
    "to", "cuda", "cpu", "float", "double", "half", "train", "apply", "share_memory", "bfloat16", "compile",
    "DataParallel", "DistributedDataParallel", "DDP", "script", "list", "tuple", "reversed", "iter", "set", "type",
})  # fmt: skip
"""Calls that give back the model or the list that they get."""
_HARMLESS = frozenset({
    "print", "len", "sum", "isinstance", "type", "id", "str", "repr", "summary", "save", "dump", "state_dict", "next",
    "clip_grad_norm_", "clip_grad_value_", "hasattr", "getattr", "any", "all", "max", "min", "info", "watch", "compile",
    "tqdm", "named_parameters", "parameters", "modules", "children", "set_postfix", "format", "log", "write", "update",
    "get_last_lr", "count_parameters", "add_graph", "manual_seed", "vars", "DataLoader", "append", "unscale_", "unscale",
    "state_dict", "log_model", "load",
})  # fmt: skip
"""Calls that change nothing of what they get."""
_OF_DATA = frozenset({"numpy", "np", "sklearn", "pandas", "math", "random", "scipy", "time", "os", "json"})
_BUILT_IN = frozenset({"sum", "max", "min", "abs", "sorted", "pow", "list", "set", "tuple", "dict", "iter", "next", "reversed"})
_MAKERS = frozenset({"tensor", "Tensor", "FloatTensor", "LongTensor", "as_tensor", "from_numpy", "array", "asarray"})


def called(run: Follower, node: ast.Call) -> Value:
    """What a call returns."""
    last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    owner = run.value(node.func.value) if isinstance(node.func, ast.Attribute) else None
    if isinstance(node.func, ast.Name) and last == "super":
        return Tensor()
    if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
        return _parents(run, node, last)
    function = run.value(node.func) if not isinstance(node.func, (ast.Attribute, ast.Call)) else None
    if isinstance(node.func, ast.Attribute) and isinstance(owner, (Thing, Class)):
        function = run._attribute(node.func)
    elif isinstance(node.func, ast.Call):
        function = run.value(node.func)
    given = _given(run, node)
    named = {each.arg or "**": run.value(each.value) for each in node.keywords}
    if isinstance(function, Class):
        return instantiate(run, function, node, given, named)
    if isinstance(function, Function):
        return entered(run, function, node, given, named)
    if isinstance(function, Thing) and function.kind == "module":
        return forwarded(run, function, node, given, named)
    if isinstance(function, Thing):
        return None
    if isinstance(function, Tensor) and isinstance(node.func, ast.Name) and last not in run.aliases:
        return mixed([function, *given, *named.values()], graph=run.graph)  # Tensor = torch.cuda.FloatTensor
    if isinstance(owner, Thing) and not (owner.kind == "leaf"):
        known, value = _method(run, owner, last, node, given, named)
        if known:
            return value
    if last in ("backward", "manual_backward"):
        loss = given[0] if given and last == "backward" and owner is None else owner
        run.happens("backward", None, node, loss if last == "backward" else None)
        return None
    return _library(run, node, last, owner, given, named)


def _given(run: Follower, node: ast.Call) -> list[Value]:
    """The arguments; what `*values` holds is as many as are asked for."""
    found: list[Value] = []
    for each in node.args:
        value = run.value(each)
        if isinstance(each, ast.Starred) and isinstance(value, Tensor):
            found += [value] * _MOST_SPREAD
        elif isinstance(each, ast.Starred) and isinstance(value, Thing) and value.kind == "list" and not value.open:
            found += value.parts.values()
        else:
            found.append(value)
    return found


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _parents(run: Follower, node: ast.Call, last: str) -> Value:
    """`super().__init__(width)`: the method of a base class in this script."""
    itself = run.frame.find("self")
    around = next((each for each in reversed(run.calls)), None)
    given = [run.value(each) for each in node.args]
    named = {each.arg or "**": run.value(each.value) for each in node.keywords}
    owner = itself.made_by if isinstance(itself, Thing) else None
    for _ in range(8):
        bases = [run.main.find(each.id) for each in owner.bases if isinstance(each, ast.Name)] if owner else []
        holds = owner is not None and around in owner.body
        owner = next((each.node for each in bases if isinstance(each, Class) and each.node is not owner), None)
        if holds or owner is None:
            break
    method = run.method(owner, last)
    if method is not None:
        return entered(run, Function(method, run.main, itself, is_method=True), node, given, named)
    return None


def _library(run: Follower, node: ast.Call, last: str, owner: Value, given: list[Value], named: dict[str, Value]) -> Value:
    """A call of a library, or of what nobody knows."""
    dotted = dotted_name(node.func, run.aliases) if not isinstance(node.func, ast.Call) else ""
    head = dotted.partition(".")[0]
    imported = isinstance(node.func, (ast.Name, ast.Attribute)) and _root(node.func) in run.aliases
    values = [*given, *named.values()]
    if last in ("grad", "zero_grad", "vjp", "jacobian", "hessian"):
        run.happens("backward" if last != "zero_grad" else "zero", None, node)
        return None
    if last == "step":
        inside = next((each for each in given if isinstance(each, Thing) and each.kind == "optimizer"), None)
        about_rates = "sched" in dotted.lower() or "lr" in dotted.lower().split(".")
        run.happens("step" if inside is not None or not about_rates else "schedule", inside, node)
        return None
    if imported and is_optimizer(last) and values:
        return _optimizer(run, node, given, named)
    if imported and _SCHEDULE.fullmatch(last):
        first = given[0] if given else named.get("optimizer")
        made = run.made("scheduler", node, last)
        made.on = first if isinstance(first, Thing) and first.kind == "optimizer" else None
        return made
    if last == "Parameter":
        return run.made("leaf", node, "Parameter")
    if imported and dotted.startswith("torch.nn.") and last[:1].isupper() and ".utils." not in dotted and last not in _SAME:
        return _layer(run, node, last, given, named)
    if last == "deepcopy" and given and isinstance(given[0], Thing):
        return _copied(run, given[0], node)
    if last in _SAME and given and isinstance(given[0], Thing) and (owner is None or imported):
        return given[0]
    if last in ("filter", "chain") or dotted.endswith("chain.from_iterable"):
        ways = values[1:] if last == "filter" else values
        return run.params(node, ways) if any(isinstance(each, Thing) and each.kind == "params" for each in ways) else None
    return _computed(run, node, last, owner, values, dotted if imported else "", head if imported else "")


def _computed(run: Follower, node: ast.Call, last: str, owner: Value, values: list[Value], dotted: str, head: str) -> Value:
    """A function of tensors."""
    asks = any(each.arg == "requires_grad" and "True" in ast.unparse(each.value) for each in node.keywords)
    if last == "requires_grad_" and isinstance(owner, Tensor):
        fresh = run.leaf(node, owner) if not node.args or "True" in ast.unparse(node.args[0]) else owner
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, (ast.Name, ast.Attribute)):
            run.bind(node.func.value, fresh)
        return fresh
    if asks and (head == "torch" or not dotted):
        return run.leaf(node, mixed(values))
    if last in _CUT or (last in _OF_NUMBERS and isinstance(node.func, ast.Name)):
        return cut(mixed([owner, *values]) if isinstance(owner, Tensor) else mixed(values))
    if last in ("enumerate", "zip", "tqdm", "trange"):
        return mixed(each for each in values if not isinstance(each, Thing)) if not _things(values) else (
            values[0] if last == "tqdm" else None
        )  # fmt: skip
    if head == "torch" and last in _MAKERS:
        return cut(mixed(values))
    if dotted.startswith(("torch.hub", "torch.load", "torch.jit", "torchvision.models")):
        return None
    if head in _OF_DATA or dotted.startswith("torchvision.") or last in ("DataLoader", "TensorDataset", "device", "Generator", "random_split"):
        return cut(mixed(values))
    if head == "torch":
        return mixed(values, graph=run.graph) if values else Tensor()
    changes = last.endswith("_") or last in ("append", "extend", "insert", "add", "update")
    if changes and isinstance(owner, Tensor) and isinstance(node.func, ast.Attribute) and values:
        if isinstance(node.func.value, (ast.Name, ast.Attribute)) and not dotted:
            run.bind(node.func.value, mixed([owner, *values], graph=run.graph))
    if isinstance(owner, Tensor) or (isinstance(owner, Thing) and owner.kind == "leaf"):
        return mixed([owner, *values], graph=run.graph)
    if isinstance(node.func, ast.Name) and last in _BUILT_IN and not _things(values):
        return mixed(values, graph=run.graph)
    if head in sys.stdlib_module_names:
        return cut(mixed(each for each in values if not isinstance(each, Thing)))
    return _unknown(run, node, last, values)


def _unknown(run: Follower, node: ast.Call, last: str, values: list[Value]) -> Value:
    """A call into what nobody knows; a method of this script, if only one has this name."""
    ways = run.functions.get(last, [])
    if len(ways) == 1 and isinstance(node.func, ast.Attribute):
        _, method = ways[0]
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return entered(run, Function(method, run.main, None, is_method=True), node, values, {})
    if last not in _HARMLESS:
        run.happens("unknown", None, node)
        for each in values:
            _hand_over(each)
    return None


def _hand_over(value: Value) -> None:
    """Code that nobody sees may do anything to it."""
    if isinstance(value, Thing):
        value.excused = value.open = True
        if value.kind == "optimizer":
            value.held = None
        for each in (*parts_of(value), *(value.held or ())):
            for part in parts_of(each):
                part.excused = True


def _optimizer(run: Follower, node: ast.Call, given: list[Value], named: dict[str, Value]) -> Thing:
    made = run.made("optimizer", node, dotted_name(node.func, run.aliases).rpartition(".")[2])
    first = given[0] if given else named.get("params")
    made.held = _held(run, node, first)
    run.happens("build", made, node)
    return made


def _held(run: Follower, node: ast.AST, value: Value) -> list[Thing] | None:
    """The models whose parameters these are: one's, a list of them, or groups."""
    if isinstance(value, Thing) and value.kind == "params":
        return value.held
    if isinstance(value, Thing) and value.kind == "list" and not value.open and value.parts:
        found: list[Thing] = []
        for each in value.parts.values():
            part = each.parts.get("params") if isinstance(each, Thing) and "params" in each.parts else each
            inner = [part] if isinstance(part, Thing) and part.kind == "leaf" else _held(run, node, part)
            if inner is None:
                return None
            found += inner
        return found
    return None


def _layer(run: Follower, node: ast.Call, last: str, given: list[Value], named: dict[str, Value]) -> Thing:
    made = run.made("module", node, last)
    made.excused = any(getattr(each, "name", "") in ("forward", "__call__") for each in run.calls)
    values = list(given)
    if len(values) == 1 and isinstance(values[0], Thing) and values[0].kind == "list":
        made.open = values[0].open
        made.parts = dict(values[0].parts)
        return made
    for each in (*values, *named.values()):
        if isinstance(each, Thing) and each.kind in ("module", "leaf"):
            made.parts[str(len(made.parts))] = each
        elif last in ("Sequential", "ModuleList") and not isinstance(each, Tensor):
            made.open = True
    return made


def _copied(run: Follower, thing: Thing, node: ast.AST) -> Thing:
    made = run.made(thing.kind, node, thing.layer, thing.made_by)
    made.copied, made.held, made.open = True, thing.held, thing.open
    made.parts = {key: _copied(run, each, node) if isinstance(each, Thing) and each.kind in ("module", "leaf", "list")
                  else each for key, each in thing.parts.items()}  # fmt: skip
    return made


def _method(
    run: Follower, owner: Thing, last: str, node: ast.Call, given: list[Value], named: dict[str, Value]
) -> tuple[bool, Value]:
    """``(known, value)`` of a method that is not the script's own."""
    if last == "zero_grad" or last == "clear_grad":
        run.happens("zero", owner, node)
    elif owner.kind == "optimizer":
        if last == "step":
            run.happens("step", owner, node)
        elif last == "add_param_group" or last.startswith("load"):
            owner.held = None
    elif owner.kind == "scheduler":
        if last == "step":
            run.happens("schedule", owner, node)
    elif last in ("parameters", "trainable_parameters"):
        made = run.made("params", node)
        made.held = [owner]
        return True, made
    elif owner.kind == "list":
        _change_list(owner, last, node, given)
        if last in ("values", "items", "get", "pop", "copy"):
            return True, owner if last in ("values", "copy") else mixed([owner]) if not _things([owner]) else None
    elif owner.kind == "module":
        return _of_model(run, owner, last, node, given)
    else:
        return False, None
    return True, None


def _of_model(run: Follower, owner: Thing, last: str, node: ast.Call, given: list[Value]) -> tuple[bool, Value]:
    if last in ("requires_grad_", "eval", "load_state_dict", "from_pretrained", "named_parameters", "children",
                "modules", "named_modules", "named_children", "register_forward_hook"):  # fmt: skip
        off = last == "requires_grad_" and bool(node.args) and "False" in ast.unparse(node.args[0])
        restored = last == "load_state_dict" and not run.loops and any(each.kind == "backward" for each in run.events)
        for each in parts_of(owner) if last != "eval" and not restored else ():
            each.excused = True
            each.frozen = off and not run.conditions and last == "requires_grad_"
        if last == "eval":
            run.happens("eval", owner, node)
        return True, owner if last in ("requires_grad_", "eval") else None
    if last in ("append", "add_module", "extend", "insert", "register_module", "register_parameter"):
        for each in given:
            if isinstance(each, Thing):
                owner.parts[f"+{len(owner.parts)}"] = each
        return True, owner
    if last in _SAME:
        return True, owner
    if last in ("state_dict", "train", "size", "register_buffer"):
        return True, None
    return False, None


def _change_list(owner: Thing, last: str, node: ast.Call, given: list[Value]) -> None:
    if last in ("append", "add") and given:
        owner.parts[str(len(owner.parts))] = given[0]
    elif last in ("extend", "update", "insert", "setdefault"):
        owner.open = True
        for each in given:
            for part in each.parts.values() if isinstance(each, Thing) and each.kind == "list" else [each]:
                owner.parts[str(len(owner.parts))] = part
    elif last in ("pop", "clear", "remove", "popleft"):
        owner.open = True


def instantiate(run: Follower, made_of: Class, node: ast.Call, given: list[Value], named: dict[str, Value]) -> Thing:
    """An object of a class of the script."""
    bases = {dotted_name(each, run.aliases).rpartition(".")[2] for each in _lineage(run, made_of)}
    made = run.made("module" if bases & {"Module"} else "object", node, by=made_of.node)
    made.open = not bases <= {"Module", "object", "Dataset", "ABC", ""}
    start = run.method(made_of.node, "__init__")
    if start is not None:
        entered(run, Function(start, made_of.frame, made, is_method=True), node, given, named)
    return made


def _lineage(run: Follower, made_of: Class, depth: int = 0) -> list[ast.expr]:
    found: list[ast.expr] = []
    for each in made_of.node.bases:
        inner = run.main.find(each.id) if isinstance(each, ast.Name) else None
        if isinstance(inner, Class) and inner is not made_of and depth < 8:
            found += _lineage(run, inner, depth + 1)
        else:
            found.append(each)
    return found


def forwarded(run: Follower, model: Thing, node: ast.Call, given: list[Value], named: dict[str, Value]) -> Value:
    """`model(x)`."""
    run.happens("forward", model, node)
    forward = run.method(model.made_by, "forward")
    if forward is not None:
        return entered(run, Function(forward, run.main, model, is_method=True), node, given, named)
    values: list[Value] = [*given, *named.values()]
    if model.is_container and not model.open:
        value: Value = values[0] if values else None
        for part in model.parts.values():
            if not isinstance(part, Thing):
                return None
            value = forwarded(run, part, node, [value], {})
        return value
    if model.layer and not model.open:
        inside = frozenset(each for each in parts_of(model) if each.is_trained)
        before = mixed(values, graph=run.graph) if values else Tensor()
        return Tensor(before.sources | (inside if run.graph else frozenset()), before.seen | inside, before.known)
    return None


def entered(run: Follower, function: Function, node: ast.AST, given: list[Value], named: dict[str, Value]) -> Value:
    """What a function of the script returns."""
    inner = function.node
    if inner in run.calls or len(run.calls) >= _DEEPEST or len(run.events) > _MOST_CALLS:
        run.happens("unknown", None, node)
        return None
    frame = Frame(function.frame)
    static = not isinstance(inner, ast.Lambda) and any(
        dotted_name(each, {}).endswith("staticmethod") for each in inner.decorator_list
    )
    bound: list[Value] = [function.owner] if function.is_method and not static else []
    _take_arguments(run, frame, inner.args, [*bound, *given], named)
    run.followed.add(inner)
    run.calls.append(inner)
    graph, names = run.graph, [] if isinstance(inner, ast.Lambda) else inner.decorator_list
    if any(dotted_name(each, {}).endswith(("no_grad", "inference_mode")) for each in names):
        run.graph = False
    try:
        with run.entered(frame):
            if isinstance(inner, ast.Lambda):
                return run.value(inner.body)
            run.body(inner.body)
    finally:
        run.graph = graph
        run.calls.pop()
    return _returned(frame.returned)


def _returned(values: list[Value]) -> Value:
    if len(values) > 1 and all(isinstance(each, Tensor) for each in values):
        return mixed(values)
    if not values:
        return Tensor()
    return values[0] if all(each is values[0] for each in values) else None


def _take_arguments(
    run: Follower, frame: Frame, wanted: ast.arguments, given: list[Value], named: dict[str, Value]
) -> None:
    names = [each.arg for each in (*wanted.posonlyargs, *wanted.args)]
    defaults = dict(zip(names[len(names) - len(wanted.defaults) :], wanted.defaults, strict=False))
    defaults |= {
        each.arg: default for each, default in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True) if default
    }
    for place, name in enumerate([*names, *(each.arg for each in wanted.kwonlyargs)]):
        if place < len(given) and place < len(names):
            frame.names[name] = given[place]
        elif name in named:
            frame.names[name] = named[name]
        else:
            default = defaults.get(name)
            with run.entered(frame.outer or run.main):
                frame.names[name] = run.value(default) if default is not None else None
    if wanted.vararg is not None:
        frame.names[wanted.vararg.arg] = None
    if wanted.kwarg is not None:
        frame.names[wanted.kwarg.arg] = None


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _things(values: list[Value]) -> bool:
    return any(isinstance(part, Thing) and part.kind in ("module", "optimizer", "object", "leaf")
               for each in values for part in parts_of(each))  # fmt: skip
