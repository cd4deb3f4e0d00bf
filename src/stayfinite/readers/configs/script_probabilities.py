"""Find calls that pass probabilities to cross entropy, when the syntax tree proves it.

A softmax for a metric, in attention, in a gate or in `predict` is fine. Names are therefore followed to their last
assignment before the call, to the model behind them, and to the return value of its `forward`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.readers.configs.program.names import dotted_name

GIVEN = "cross entropy is given probabilities"  # the text of the note

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PASSED_THROUGH = frozenset(
    {"to", "cuda", "cpu", "train", "float", "compile", "DataParallel", "DistributedDataParallel"}
)
"""Calls that return the model they are given or called on."""
_DEEPEST = 8


def probabilities_given(tree: ast.Module) -> list[ast.expr]:
    """The input of each cross-entropy call that is certainly the result of a softmax."""
    try:
        return _Search(tree).inputs()
    except RecursionError:  # a thousand nested `elif`
        return []


class _Search:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        self._own = {node.name for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
        self._assigned = _assignments(tree)

    def inputs(self) -> list[ast.expr]:
        """The inputs, in scope order."""
        found: list[ast.expr] = []
        for scope in [self._tree, *(node for node in ast.walk(self._tree) if isinstance(node, _FUNCTIONS))]:
            for statement, known in _in_order(scope.body, {}):
                for node in _own_nodes(statement):
                    if isinstance(node, ast.Call) and self._is_cross_entropy(node.func):
                        inputs = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "input")]
                        given = inputs[0] if inputs else None
                        if given is not None and self._is_softmax(given, known, self._assigned):
                            found.append(given)
        return found

    def _is_cross_entropy(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Call):
            return _last(function.func) == "CrossEntropyLoss"
        if _last(function) == "cross_entropy" and "cross_entropy" not in self._own:
            return True
        values = self._assigned.get(dotted_name(function, {}), [])
        return bool(values) and all(
            isinstance(value, ast.Call) and _last(value.func) == "CrossEntropyLoss" for value in map(_bare, values)
        )

    def _is_softmax(
        self, value: ast.expr, known: dict[str, ast.expr], assigned: dict[str, list[ast.expr]], depth: int = 0
    ) -> bool:
        """Whether a value is the result of a softmax, or of a model that ends in one."""
        if depth > _DEEPEST:
            return False
        if isinstance(value, ast.Name):
            return value.id in known and self._is_softmax(known[value.id], known, assigned, depth + 1)
        if not isinstance(value, ast.Call):
            return False
        function = value.func
        if isinstance(function, ast.Call):  # nn.Softmax(dim=1)(x), Net()(x)
            return self._ends_in_softmax(function, depth + 1)
        name = dotted_name(function, {})
        owner = name.rpartition(".")[0]
        if name in assigned:
            models = [model for model in map(_bare, assigned[name]) if dotted_name(model, {}) != name]
            return bool(models) and all(self._ends_in_softmax(model, depth + 1) for model in models)
        return _last(function) == "softmax" and owner != "self" and name not in self._own

    def _ends_in_softmax(self, model: ast.expr, depth: int) -> bool:
        """Whether a model ends in a softmax: the layer itself, a stack that ends in it, a class."""
        model = _bare(model)
        if depth > _DEEPEST or not isinstance(model, ast.Call):
            return False
        last = _last(model.func)
        if last == "Sequential" and model.args:
            return self._ends_in_softmax(model.args[-1], depth + 1)
        forward = _method(self._classes.get(last), "forward")
        if forward is None:
            return last == "Softmax" and last not in self._classes
        everywhere = _assignments(self._classes[last])
        inside = {name: values for name, values in everywhere.items() if name.startswith("self.")}
        returned = [
            statement.value is not None and self._is_softmax(statement.value, known, inside, depth + 1)
            for statement, known in _in_order(forward.body, {})
            if isinstance(statement, ast.Return)
        ]
        return bool(returned) and all(returned)


def _in_order(body: list[ast.stmt], known: dict[str, ast.expr]) -> Iterator[tuple[ast.stmt, dict[str, ast.expr]]]:
    """Yield each statement with the names known for certain when it starts; ``known`` is updated."""
    for statement in body:
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            continue
        yield statement, known
        certain = isinstance(statement, (ast.With, ast.AsyncWith))
        for inner in _bodies(statement):
            seen = known if certain else dict(known)
            yield from _in_order(inner, seen)
        for name, value in _set_by(statement, deep=not certain):
            known.pop(name, None)
            if value is not None:
                known[name] = value


def _bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    inner = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    inner += [case.body for case in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))]
    return [body for body in inner if isinstance(body, list)]


def _set_by(statement: ast.stmt, *, deep: bool) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a statement sets, with the value if certain, else None."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        yield statement.targets[0].id, statement.value
    elif not _bodies(statement) or deep:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, None


def _assignments(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """Every value assigned to `name` or `self.name`."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found.setdefault(dotted_name(target, {}), []).append(node.value)
    found.pop("", None)
    return found


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of nested statements."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, (ast.expr, ast.withitem)):
            yield from ast.walk(child)


def _bare(model: ast.expr) -> ast.expr:
    """The model without wrappers and moves: `Net().to(device)` is `Net()`."""
    for _ in range(_DEEPEST):
        if not isinstance(model, ast.Call) or _last(model.func) not in _PASSED_THROUGH:
            break
        owner = model.func.value if isinstance(model.func, ast.Attribute) else None
        of_a_module = owner is None or dotted_name(owner, {}) in ("nn", "torch", "torch.nn", "torch.nn.parallel")
        inner = (model.args[0] if model.args else None) if of_a_module else owner
        if inner is None:
            break
        model = inner
    return model


def _method(owner: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    body = owner.body if owner is not None else []
    return next((each for each in body if isinstance(each, ast.FunctionDef) and each.name == name), None)


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
