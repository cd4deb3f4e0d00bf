"""One walk over the statements of a script: what it calls, assigns and offers as arguments."""

from __future__ import annotations

import ast

from stayfinite.core.settings import Expression
from stayfinite.readers.configs.commands import looks_like_command
from stayfinite.readers.configs.scalars import dtype_name
from stayfinite.readers.configs.script_arguments import argument_of, fields_of, parameters_of
from stayfinite.readers.configs.script_calls import (
    is_constructor,
    is_optimizer,
    matters_by_itself,
    told_arguments,
    value_position,
)
from stayfinite.readers.configs.script_losses import is_telling
from stayfinite.readers.configs.script_names import Bound, dotted_name, inner_scope, names_of, statements
from stayfinite.readers.configs.script_probabilities import GIVEN, probabilities_given
from stayfinite.readers.configs.script_settings import ScriptSettings
from stayfinite.readers.configs.script_values import Unknown, Values, is_mapping
from stayfinite.readers.configs.tree import Node

_TELLING_NAMES = frozenset(
    {"fp16", "bf16", "dtype", "torch_dtype", "precision", "lr", "learning_rate", "eps", "requires_grad"}
)
"""Whose value is worth knowing of even where only the program knows it."""


def walk(tree: ast.Module, text: str, found: ScriptSettings, *, every: bool = False) -> None:
    """Add what a script says to what was found; with ``every`` all arguments of all calls."""
    _Walk(tree, text, found, every=every).go()


class _Walk:
    def __init__(self, tree: ast.Module, text: str, found: ScriptSettings, *, every: bool) -> None:
        self._tree, self._small = tree, text.lower()
        self._found = found
        self._every = every
        self._statements = list(statements(tree))
        self._names = names_of(tree)
        self._values = Values(self._names, text.split("\n"))
        self._scope = ""
        self._classes = {
            inner_scope(scope, statement.name)
            for statement, scope, _ in self._statements
            if isinstance(statement, ast.ClassDef)
        }

    def go(self) -> None:
        for statement, scope, _ in self._statements:
            self._collect_defaults(statement, scope)
        for statement, scope, _ in self._statements:
            if self._found.full:
                break
            self._scope = scope
            self._take(statement)
            if is_telling(statement):
                self._found.note(statement.lineno, self._line_of(statement))
        for given in probabilities_given(self._tree) if "softmax" in self._small and "cross" in self._small else ():
            self._found.note(given.lineno, f"{GIVEN}: {self._values.source_of(given)}")

    def _take(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._assignment(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._assignment(statement.target, statement.value)
        elif isinstance(statement, ast.ClassDef):
            for name, value, line, is_default in fields_of(statement):
                self._value(f"{statement.name}.{name}", value, line, default=is_default, unknown=False)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for name, value, line in parameters_of(statement):
                self._value(f"{statement.name}.{name}", value, line, default=True, unknown=False)
        for expression in _own_expressions(statement):
            for node in ast.walk(expression):
                if isinstance(node, ast.Call):
                    self._call(node)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 5000:
                    if "--" in node.value and looks_like_command(node.value):
                        self._found.add_command(node.value, node.lineno)
                elif isinstance(node, (ast.List, ast.Tuple)):
                    self._listed_command(node)

    def _assignment(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for each, part in zip(target.elts, value.elts, strict=True):
                    self._assignment(each, part)
            return
        if self._scope and isinstance(target, ast.Name) and self._scope in self._classes:
            return  # a field, which is taken with its class
        name = dotted_name(target, {})
        if isinstance(target, ast.Subscript):
            try:
                name = f"{name}.{self._values.known(target.slice, self._scope)}"
            except Unknown:
                return
        if name:
            self._value(name, value, target.lineno, unknown=False)

    def _call(self, call: ast.Call) -> None:
        name = dotted_name(call.func, self._names.aliases)
        last = name.rpartition(".")[2]
        if not last or is_mapping(last):
            return
        argument = argument_of(call, last)
        if argument is not None:
            self._value(argument.name, argument.default, argument.line, default=True, unknown=False)
            return
        present: object = True
        recorded = 0
        for key, value in told_arguments(call, last, every=self._every):
            if not key:
                recorded += self._more(name, value)
            elif last not in {"to", "type"} or self._is_dtype(value):
                key = _better_key(last, key, value)
                node = self._value(f"{name}.{key}", value, value.lineno)
                present = node.value if key == "enabled" and isinstance(node.value, bool) else present
                recorded += 1
        if is_optimizer(name):
            self._found.add("optimizer", last, call.lineno)
        if matters_by_itself(last) or (is_constructor(last) and not recorded):
            if value_position(last) and len(call.args) == 1:
                present = self._values.node_of(call.args[0], self._scope).value
            self._found.add(name, present, call.lineno, once=True)

    def _is_dtype(self, value: ast.expr) -> bool:
        try:
            known = self._values.known(value, self._scope)
        except Unknown:
            return "dtype" in self._values.source_of(value)
        return isinstance(known, str) and dtype_name(f"torch.{known}") is not None

    def _more(self, name: str, value: ast.expr) -> int:
        """`TrainingArguments(**settings)`."""
        node = self._values.node_of(value, self._scope)
        if not isinstance(node.value, dict):
            return 0
        for key, each in node.value.items():
            self._found.add_node(f"{name}.{key}", each)
        return len(node.value)

    def _listed_command(self, node: ast.List | ast.Tuple) -> None:
        """`parser.parse_args(["--fp16", "--lr", "1e-4"])`, `subprocess.run(["python", "train.py", "--fp16"])`."""
        words = [each.value if isinstance(each, ast.Constant) else None for each in node.elts]
        if not any(isinstance(word, str) and word.startswith("--") and len(word) > 3 for word in words):
            return
        quoted = [_shell_word(str(word)) for word in words if word is not None]
        self._found.add_command(" ".join(quoted), node.lineno, noted=False)

    def _collect_defaults(self, statement: ast.stmt, scope: str) -> None:
        if isinstance(statement, ast.ClassDef):
            for name, value, line, _ in fields_of(statement):
                self._names.defaults.setdefault(name, []).append(Bound(value, scope, line))
        for expression in _own_expressions(statement):
            for node in ast.walk(expression):
                if isinstance(node, ast.Call):
                    argument = argument_of(node, dotted_name(node.func, {}).rpartition(".")[2])
                    if argument is not None:
                        bound = Bound(argument.default, scope, argument.line)
                        self._names.defaults.setdefault(argument.attribute, []).append(bound)

    def _value(self, name: str, value: ast.expr, line: int, *, default: bool = False, unknown: bool = True) -> Node:
        node = self._values.node_of(value, self._scope)
        node.line = line
        if unknown or not isinstance(node.value, Expression) or _is_worth_keeping(name, value):
            self._found.add_node(name, node, kind="default" if default or self._values.defaulted else "")
        return node

    def _line_of(self, statement: ast.stmt) -> str:
        if isinstance(statement, ast.With):
            return "with " + ", ".join(self._values.source_of(item.context_expr) for item in statement.items)
        if isinstance(statement, ast.For):
            return f"for {self._values.source_of(statement.target)} in {self._values.source_of(statement.iter)}:"
        if isinstance(statement, ast.While):
            return f"while {self._values.source_of(statement.test)}:"
        return self._values.source_of(statement)


def _own_expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement, without those of the statements inside it."""
    found: list[ast.expr] = []
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            found.append(child)
        elif isinstance(child, ast.withitem):
            found.append(child.context_expr)
        elif isinstance(child, ast.keyword):
            found.append(child.value)
    return found


def _better_key(last: str, key: str, value: ast.expr) -> str:
    """`torch.cuda.amp.autocast(True)` and `GradScaler(65536.0)`: the older forms of the two."""
    if key in {"device_type", "device"} and isinstance(value, ast.Constant):
        if isinstance(value.value, bool):
            return "enabled"
        if isinstance(value.value, (int, float)) and last == "GradScaler":
            return "init_scale"
    return key


def _is_worth_keeping(name: str, value: ast.expr) -> bool:
    """Of unknown values those of simple names that say how to train: `fp16 = not torch.cuda.is_bf16_supported()`."""
    if isinstance(value, (ast.Call, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.JoinedStr, ast.BinOp)):
        return name.rpartition(".")[2].lower() in _TELLING_NAMES
    return False


def _shell_word(word: str) -> str:
    return "'" + word.replace("'", "") + "'" if not word or any(character in " \"'$\\" for character in word) else word
