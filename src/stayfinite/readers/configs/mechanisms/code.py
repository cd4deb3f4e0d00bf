"""A syntax tree, ready to be asked: who assigns a name, what encloses a node, which calls there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from stayfinite.core.settings import When
from stayfinite.readers.configs.program.names import dotted_name

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MOST_NODES = 60_000
"""Nodes of a tree that is looked at."""


class Mechanism(NamedTuple):
    """A fault, and the node that shows it."""

    cause: str
    text: str
    node: ast.expr | ast.stmt
    sure: bool = True
    when: When = ""
    """The symptom without which it is none."""
    mild: bool = False
    """Whether training survives it."""
    fix: str = ""

    @property
    def shown(self) -> str:
        """The words, and the line of code."""
        return f"{self.text}: {ast.unparse(self.node).splitlines()[0][:120]}"


class Assigned(NamedTuple):
    """A value that a name gets; None where it cannot be told."""

    value: ast.expr | None
    at: ast.AST


class Code:
    """One syntax tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []
        self.classes: dict[str, ast.ClassDef] = {}
        self.assigned: dict[str, list[Assigned]] = {}
        self.calls: list[ast.Call] = []
        for node in ast.walk(tree):
            self.nodes.append(node)
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if isinstance(node, ast.Call):
                self.calls.append(node)
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            for name, value in _assigned_by(node):
                self.assigned.setdefault(name, []).append(Assigned(value, node))

    @cached_property
    def text(self) -> str:
        """The whole tree in one spelling."""
        return ast.unparse(self.tree)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What encloses a node, the nearest first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope_of(self, node: ast.AST) -> ast.AST:
        """The function around a node, else the module."""
        return next((each for each in self.around(node) if isinstance(each, FUNCTIONS)), self.tree)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class around a node."""
        return next((each for each in self.around(node) if isinstance(each, ast.ClassDef)), None)

    def tests_around(self, node: ast.AST) -> str:
        """The conditions under which a node is reached, as text."""
        inside = [each for each in self.around(node) if isinstance(each, (ast.If, ast.IfExp))]
        return " ".join(ast.unparse(each.test) for each in inside)

    def value_of(self, name: ast.expr, at: ast.AST) -> ast.expr | None:
        """What a plain name holds at a node: its last assignment before it; None where that is not certain."""
        if not isinstance(name, ast.Name):
            return None
        scope, line = self.scope_of(at), getattr(at, "lineno", 0)
        here = [each for each in self.assigned.get(name.id, ()) if self.scope_of(each.at) is scope]
        before = [each for each in here if getattr(each.at, "lineno", 0) < line]
        if not before:
            return None if here or name.id in parameters_of(scope) else self._alone(name.id)
        last = max(before, key=lambda each: getattr(each.at, "lineno", 0))
        branches = [each for each in self.around(last.at) if isinstance(each, ast.If)]
        reached = set(self.around(at))
        return last.value if all(each in reached for each in branches) else None

    def objects(self, name: ast.expr) -> list[ast.expr | None]:
        """Every value that stands for `model` or `self.fc`; of one class if it is an attribute of `self`."""
        dotted = dotted_name(name, {}) if isinstance(name, (ast.Name, ast.Attribute)) else ""
        found = self.assigned.get(dotted, [])
        if dotted.startswith("self."):
            owner = self.class_of(name)
            found = [each for each in found if self.class_of(each.at) is owner]
        return [each.value for each in found if not _is_itself(each.value, dotted)]

    def _alone(self, name: str) -> ast.expr | None:
        """The value of a name that is assigned once, outside functions."""
        found = self.assigned.get(name, [])
        return found[0].value if len(found) == 1 and self.scope_of(found[0].at) is self.tree else None


def parameters_of(scope: ast.AST) -> list[str]:
    """The names of a function's parameters."""
    if not isinstance(scope, FUNCTIONS):
        return []
    return [each.arg for each in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)]


def last_name(function: ast.expr) -> str:
    """`Linear` of `torch.nn.Linear`."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def name_of(value: ast.expr) -> str:
    """`Adam` of `torch.optim.Adam`, and of a call of it."""
    return last_name(value.func if isinstance(value, ast.Call) else value)


def given(call: ast.Call, place: int, *names: str) -> ast.expr | None:
    """The argument with one of these names, else the one in this place."""
    told = next((each.value for each in call.keywords if each.arg in names), None)
    return call.args[place] if told is None and 0 <= place < len(call.args) else told


def whole_number(value: ast.expr | None) -> int | None:
    """The value of `1` and `-1`."""
    sign = -1 if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else 1
    inner = value.operand if isinstance(value, ast.UnaryOp) else value
    number = inner.value if isinstance(inner, ast.Constant) else None
    return sign * number if isinstance(number, int) and not isinstance(number, bool) else None


def _assigned_by(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    targets: list[ast.expr] = []
    value: ast.expr | None = None
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign):
        targets, value = [node.target], node.value
    elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr)):
        targets = [node.target]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        targets = [each.optional_vars for each in node.items if each.optional_vars is not None]
    for target in targets:
        if isinstance(target, (ast.Name, ast.Attribute)):
            yield dotted_name(target, {}), value
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            same = len(values) == len(target.elts)
            for place, each in enumerate(target.elts):
                if isinstance(each, (ast.Name, ast.Attribute)):
                    yield dotted_name(each, {}), values[place] if same else None


def _is_itself(value: ast.expr | None, name: str) -> bool:
    """`model = model.to(device)`, `model = nn.DataParallel(model)`."""
    if not isinstance(value, ast.Call):
        return False
    inner = [*value.args[:1], value.func.value] if isinstance(value.func, ast.Attribute) else value.args[:1]
    return any(isinstance(each, (ast.Name, ast.Attribute)) and dotted_name(each, {}) == name for each in inner)
