"""Objects that keep a state: metrics that are never reset, scalers that are never updated, seeds of loader workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.picking import dataset_of, truth
from stayfinite.readers.configs.course.terms import Event, Passes, Term, number
from stayfinite.readers.configs.judges.fault import Fault

_RESET = lazy_regex(r"\breset|_reset\b|\bclone\(|deepcopy|LightningModule|MetricTracker|Running")


def kept_metrics(course: Course) -> Iterator[Fault]:
    """A metric of torchmetrics that adds up the batches of every epoch, and is computed once an epoch."""
    if "torchmetrics" not in course.code or _RESET.search(course.code):
        return
    for metric in course.terms:
        if metric.op != "made" or not metric.name.startswith("torchmetrics"):
            continue
        calls = [each for each in course.events if _owner(each) is metric]
        added = [each.passes for each in calls if each.kind == "forward" or each.result.last == "update"]
        for event in (each for each in calls if each.result.last == "compute"):
            epoch = event.passes[-1:]
            if not epoch or event.passes[:-1] != metric.passes or not epoch[0][1]:
                continue
            now = any(_is_inside(each, event.passes) for each in added)
            before = any(_is_inside(each, (*event.passes[:-1], (epoch[0][0], 0))) for each in added)
            if now and before and all(len(each) > len(event.passes) for each in added):
                name = course.titles.get(id(metric)) or metric.last
                text = f"{name}.reset() is never called: each epoch's result mixes all epochs so far"
                yield Fault("metric-not-reset", text, event.node.lineno, mild=True, fix=f"{name}.reset() each epoch")
                return


def _owner(event: Event) -> Term | None:
    """The object whose method was called, or that was called itself."""
    result = event.result
    return result.parts[0] if result.op in ("method", "applied") and result.parts else None


def _is_inside(inner: Passes, outer: Passes) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def scalers_never_updated(course: Course) -> Iterator[Fault]:
    """`scaler.step(optimizer)` in a loop, and nothing that knows the scaler calls `update`."""
    for scaler in course.terms:
        if scaler.op != "made" or scaler.last != "GradScaler" or not scaler.name.startswith("torch"):
            continue
        enabled = scaler.keywords.get("enabled")
        if enabled is not None and truth(enabled) is not True:
            continue
        known = [each for each in course.terms if scaler in (*each.parts, *each.keywords.values())]
        if any(each.op not in ("method", "attribute") or each.parts[0] is not scaler for each in known):
            continue  # others have it, too
        calls = [each for each in course.events if _owner(each) is scaler]
        steps = [each for each in calls if each.result.last == "step" and any(place for _, place in each.passes)]
        if steps and not any(each.last in ("update", "load_state_dict") for each in known):
            name = ast.unparse(steps[0].node.func.value)
            if f"{name}.update" not in course.code:
                text = f"{name}.update() is never called: torch refuses the second step"
                yield Fault("step-fails", text, steps[0].node.lineno, fix=f"{name}.update() after {name}.step()")
                return


_DRAWS = {
    "np": lazy_regex(
        r"\b(?:np|numpy)\.random\.(?:rand|randint|randn|random|uniform|normal|choice|beta|shuffle|permutation)\("
    ),
    "random": lazy_regex(
        r"(?<![\w.])random\.(?:random|randint|uniform|choice|choices|shuffle|sample|gauss|randrange)\("
    ),
}
_SEEDS = {"np": ("np.random.seed", "numpy.random.seed"), "random": ("random.seed",)}


def alike_workers(course: Course) -> Iterator[Fault]:
    """`worker_init_fn` that seeds each worker with one constant, for a dataset that draws from that generator."""
    for loader in course.terms:
        if loader.op != "made" or loader.last != "DataLoader":
            continue
        start, count = loader.keywords.get("worker_init_fn"), loader.given(5, "num_workers")
        dataset = dataset_of(loader)
        many = count is not None and (number(count) or 0) > 1
        if not many or start is None or start.op != "function" or dataset is None or dataset.op != "instance":
            continue
        item = next((each for each in dataset.data.node.body if getattr(each, "name", "") == "__getitem__"), None)
        drawn = ast.unparse(item) if item is not None else ""
        for kind, draws in _DRAWS.items():
            seed = _constant_seed(course, start.node, _SEEDS[kind])
            if seed is not None and draws.search(drawn):
                text = f"worker_init_fn seeds every worker with {seed:g}: all workers draw the same numbers"
                yield Fault("workers-alike", text, start.line, mild=True, fix="seed with torch.initial_seed() % 2**32")
                return


def _constant_seed(course: Course, function: ast.AST, names: tuple[str, ...], depth: int = 0) -> float | None:
    """The one number that a function seeds a generator with, by itself or through a function that it calls."""
    body = function.body if isinstance(function, (ast.FunctionDef, ast.Lambda)) else None
    statements = body if isinstance(body, list) else [ast.Expr(body)] if body is not None else []
    calls = [each.value for each in statements if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    if depth > 1 or len(calls) != len(statements):
        return None  # more than calls
    for call in calls:
        if len(call.args) != 1 or call.keywords:
            continue
        given = call.args[0]
        if ast.unparse(call.func) in names:
            return _number(course, given)
        inner = course.frames[0].names.get(ast.unparse(call.func))
        if inner is not None and inner.op == "function" and _seeds_with_argument(inner.node, names):
            return _number(course, given)
    return None


def _seeds_with_argument(function: ast.AST, names: tuple[str, ...]) -> bool:
    """`def fix(seed): np.random.seed(seed)`."""
    if not isinstance(function, ast.FunctionDef) or not function.args.args:
        return False
    first = function.args.args[0].arg
    return any(
        isinstance(each, ast.Expr) and ast.unparse(each.value) in {f"{name}({first})" for name in names}
        for each in function.body
    ) and not any(isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) for each in ast.walk(function))


def _number(course: Course, given: ast.expr) -> float | None:
    """A number as it is written, or that of a name of the module."""
    if isinstance(given, ast.Name):
        found = course.frames[0].names.get(given.id)
        return number(found) if found is not None else None
    value = given.value if isinstance(given, ast.Constant) else None
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else None
