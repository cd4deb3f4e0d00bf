"""What calls of torch and other libraries return: layers, optimizers, schedules, tensors with or without a graph."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.program.names import dotted_name
from stayfinite.readers.configs.script_calls import is_optimizer
from stayfinite.readers.configs.updates.things import Function, Tensor, Thing, Value, cut, mixed, parts_of

if TYPE_CHECKING:
    from stayfinite.readers.configs.updates.expressions import Expressions

_SCHEDULE = lazy_regex(r"\w+LR|CosineAnnealingWarmRestarts|ReduceLROnPlateau|get_\w*schedule\w*")
_CUT = frozenset({
    "item", "detach", "detach_", "numpy", "tolist", "argmax", "argmin", "argsort", "eq", "ne", "gt", "lt", "ge",
    "le", "long", "int", "bool", "size", "dim", "numel", "isnan", "isfinite", "multinomial", "bernoulli", "one_hot",
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
    "get_last_lr", "count_parameters", "add_graph", "manual_seed", "vars", "DataLoader", "append", "unscale_",
    "unscale", "log_model", "load",
})  # fmt: skip
"""Calls that change nothing of what they get."""
_OF_DATA = frozenset({"numpy", "np", "sklearn", "pandas", "math", "random", "scipy", "time", "os", "json"})
_BUILT_IN = frozenset(
    {"sum", "max", "min", "abs", "sorted", "pow", "list", "set", "tuple", "dict", "iter", "next", "reversed"}
)
_MAKERS = frozenset({"tensor", "Tensor", "FloatTensor", "LongTensor", "as_tensor", "from_numpy", "array", "asarray"})


def library_call(
    run: Expressions, node: ast.Call, last: str, owner: Value, given: list[Value], named: dict[str, Value]
) -> Value:
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
        fixed = any(each.arg == "requires_grad" and "False" in ast.unparse(each.value) for each in node.keywords)
        return Tensor() if fixed else run.made("leaf", node, "Parameter")
    if (
        imported
        and dotted.startswith("torch.nn.")
        and last[:1].isupper()
        and ".utils." not in dotted
        and last not in _SAME
    ):
        return _layer(run, node, last, given, named)
    if last == "deepcopy" and given and isinstance(given[0], Thing):
        return _copied(run, given[0], node)
    if last in _SAME and given and isinstance(given[0], Thing) and (owner is None or imported):
        return given[0]
    if last in ("filter", "chain") or dotted.endswith("chain.from_iterable"):
        ways = values[1:] if last == "filter" else values
        return (
            run.params(node, ways) if any(isinstance(each, Thing) and each.kind == "params" for each in ways) else None
        )
    return _computed(run, node, last, owner, values, dotted if imported else "", head if imported else "")


def _computed(
    run: Expressions, node: ast.Call, last: str, owner: Value, values: list[Value], dotted: str, head: str
) -> Value:
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
        return mixed(values) if not _things(values) else values[0] if last == "tqdm" else None
    if head == "torch" and last in _MAKERS:
        return cut(mixed(values))
    if dotted.startswith(("torch.hub", "torch.load", "torch.jit", "torchvision.models")):
        return None
    if (
        head in _OF_DATA
        or dotted.startswith("torchvision.")
        or last in ("DataLoader", "TensorDataset", "device", "Generator", "random_split")
    ):
        return cut(mixed(values))
    if head == "torch":
        return mixed(values, graph=run.graph) if values else Tensor()
    changes = last.endswith("_") or last in ("append", "extend", "insert", "add", "update")
    holder = node.func.value if isinstance(node.func, ast.Attribute) else None
    if (
        changes
        and isinstance(owner, Tensor)
        and isinstance(holder, (ast.Name, ast.Attribute))
        and values
        and not dotted
    ):
        run.bind(holder, mixed([owner, *values], graph=run.graph))
    if isinstance(owner, Tensor) or (isinstance(owner, Thing) and owner.kind == "leaf"):
        return mixed([owner, *values], graph=run.graph)
    if isinstance(node.func, ast.Name) and last in _BUILT_IN and not _things(values):
        return mixed(values, graph=run.graph)
    if head in sys.stdlib_module_names:
        return cut(mixed(each for each in values if not isinstance(each, Thing)))
    return _unknown(run, node, last, values)


def _unknown(run: Expressions, node: ast.Call, last: str, values: list[Value]) -> Value:
    """A call into what nobody knows; a method of this script, if only one has this name."""
    ways = run.functions.get(last, [])
    if len(ways) == 1 and isinstance(node.func, ast.Attribute):
        _, method = ways[0]
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            from stayfinite.readers.configs.updates.calling import entered

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


def _optimizer(run: Expressions, node: ast.Call, given: list[Value], named: dict[str, Value]) -> Thing:
    made = run.made("optimizer", node, dotted_name(node.func, run.aliases).rpartition(".")[2])
    first = given[0] if given else named.get("params")
    made.held = _held(run, node, first)
    run.happens("build", made, node)
    return made


def _held(run: Expressions, node: ast.AST, value: Value) -> list[Thing] | None:
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


def _layer(run: Expressions, node: ast.Call, last: str, given: list[Value], named: dict[str, Value]) -> Thing:
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


def _copied(run: Expressions, thing: Thing, node: ast.AST) -> Thing:
    made = run.made(thing.kind, node, thing.layer, thing.made_by)
    made.copied, made.held, made.open = True, thing.held, thing.open
    made.parts = {key: _copied(run, each, node) if isinstance(each, Thing) and each.kind in ("module", "leaf", "list")
                  else each for key, each in thing.parts.items()}  # fmt: skip
    return made


def method_of_thing(
    run: Expressions, owner: Thing, last: str, node: ast.Call, given: list[Value]
) -> tuple[bool, Value]:
    """``(known, value)`` of a method that is not the script's own."""
    if last in ("zero_grad", "clear_grad"):
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
        _change_list(owner, last, given)
        if last in ("values", "items", "get", "pop", "copy"):
            return True, owner if last in ("values", "copy") else mixed([owner]) if not _things([owner]) else None
    elif owner.kind == "module":
        return _of_model(run, owner, last, node, given)
    else:
        return False, None
    return True, None


def _of_model(run: Expressions, owner: Thing, last: str, node: ast.Call, given: list[Value]) -> tuple[bool, Value]:
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
        for part in given:
            if isinstance(part, Thing):
                owner.parts[f"+{len(owner.parts)}"] = part
        return True, owner
    if last in _SAME:
        return True, owner
    if last in ("state_dict", "train", "size", "register_buffer"):
        return True, None
    return False, None


def _change_list(owner: Thing, last: str, given: list[Value]) -> None:
    if last in ("append", "add") and given:
        owner.parts[str(len(owner.parts))] = given[0]
    elif last in ("extend", "update", "insert", "setdefault"):
        owner.open = True
        for each in given:
            for part in each.parts.values() if isinstance(each, Thing) and each.kind == "list" else [each]:
                owner.parts[str(len(owner.parts))] = part
    elif last in ("pop", "clear", "remove", "popleft"):
        owner.open = True


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _things(values: list[Value]) -> bool:
    return any(isinstance(part, Thing) and part.kind in ("module", "optimizer", "object", "leaf")
               for each in values for part in parts_of(each))  # fmt: skip
