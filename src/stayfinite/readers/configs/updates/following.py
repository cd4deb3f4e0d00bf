"""Follow a script in the order of execution: which models its names stand for, and what is done to them in which loop.

Values are not computed: each loop is gone through once, and so is every branch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from stayfinite.readers.configs.program.names import dotted_name
from stayfinite.readers.configs.updates.expressions import (
    FALSE,
    FUNCTIONS,
    NOTHING,
    TRUE,
    Expressions,
    TooLong,
    name_after,
)
from stayfinite.readers.configs.updates.things import Class, Function, Tensor, Thing, merged, mixed, parts_of

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Follower(Expressions):
    """One script, followed once."""

    def __init__(self, tree: ast.Module, is_library: Callable[[str], bool]) -> None:
        super().__init__(tree, is_library)
        self.body(tree.body)

    def body(self, statements: Sequence[ast.stmt]) -> None:
        """Execute statements."""
        for each in statements:
            self._left -= 1
            if self._left < 0:
                raise TooLong
            self._execute(each)

    def _execute(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            value = self.value(node.value)
            for target in node.targets:
                self.bind(target, value)
                name_after(value, target)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.bind(node.target, self.value(node.value))
        elif isinstance(node, ast.AugAssign):
            self._add(node)
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.Return):
            self.frame.returned.append(self.value(node.value) if node.value is not None else None)
        elif isinstance(node, FUNCTIONS):
            self.frame.names[node.name] = Function(node, self.frame)
        elif isinstance(node, ast.ClassDef):
            self.frame.names[node.name] = Class(node, self.frame)
        elif isinstance(node, ast.If):
            self._branch(node)
        elif isinstance(node, _LOOPS):
            self._loop(node)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self._with(node)
        elif isinstance(node, ast.Try):
            self.body(node.body)
            for handler in node.handlers:
                with self.within(handler, "except"):
                    self._apart(handler.body)
            self.body(node.orelse)
            self.body(node.finalbody)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self.frame.shared |= set(node.names)
        elif isinstance(node, (ast.Assert, ast.Delete, ast.Raise)):
            pass
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child)

    def _add(self, node: ast.AugAssign) -> None:
        before, value = self.value(node.target), self.value(node.value)
        if isinstance(before, Thing):
            if before.kind == "list":
                before.open = True
                for part in value.parts.values() if isinstance(value, Thing) and value.kind == "list" else [value]:
                    before.parts[str(len(before.parts))] = part
            elif before.kind == "leaf":
                self.happens("by hand", before, node)
            return
        self.bind(node.target, mixed([before, value], graph=self.graph))

    def _branch(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Compare) and dotted_name(node.test.left, {}) == "__name__":
            self.body(node.body)
            return
        self.value(node.test)
        taken = self._decided(node.test)
        if taken is not None:
            self.body(node.body if taken else node.orelse)
            return
        before = dict(self.frame.names)
        with self.within(node, "body"):
            self.body(node.body)
        after, self.frame.names = self.frame.names, before
        with self.within(node, "else"):
            self.body(node.orelse)
        ends = [bool(part) and _ends(part[-1]) for part in (node.body, node.orelse)]
        if ends[1] and not ends[0]:
            self.frame.names = after
        elif not ends[0]:
            names = self.frame.names
            self.frame.names = {
                each: merged(after[each], names[each]) if each in after and each in names else (after | names)[each]
                for each in {**after, **names}
            }

    def _decided(self, test: ast.expr) -> bool | None:
        """What a test comes to where it asks for an optimizer, a model, or a flag that is at hand."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._decided(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self._decided(each) for each in test.values]
            ends = not isinstance(test.op, ast.And)
            if ends in parts:
                return ends
            return None if None in parts else not ends
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            left = self.value(test.left)
            if ast.unparse(test.comparators[0]) != "None" or not (left is NOTHING or isinstance(left, Thing)):
                return None
            return (left is NOTHING) == isinstance(test.ops[0], ast.Is)
        if isinstance(test, (ast.Name, ast.Constant, ast.Attribute)):
            value = self.value(test)
            if value is TRUE or (isinstance(value, Thing) and value.kind in ("module", "optimizer", "scheduler")):
                return True
            return False if value is FALSE or value is NOTHING else None
        return None

    def _apart(self, body: Sequence[ast.stmt]) -> None:
        before = dict(self.frame.names)
        self.body(body)
        after, self.frame.names = self.frame.names, before
        for name in after:
            self.frame.names[name] = merged(before[name], after[name]) if name in before else after[name]

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        if isinstance(node, ast.While):
            with self.looped(node):
                self.value(node.test)
                self.body(node.body)
            return
        over = self.value(node.iter)
        with self.looped(node):
            if isinstance(over, Thing) and over.kind == "params":
                self._over_parameters(node, over)
            elif isinstance(over, Thing) and over.kind in ("list", "module"):
                for each in list(over.parts.values())[:64] or [None]:
                    self.bind(node.target, each)
                    self.body(node.body)
            else:
                self.bind(node.target, over if isinstance(over, Tensor) else None)
                self.body(node.body)
        self.body(node.orelse)

    def _over_parameters(self, node: ast.For | ast.AsyncFor, over: Thing) -> None:
        """`for p in model.parameters(): p.requires_grad = False`, or whatever else is done to them."""
        text = "\n".join(map(ast.unparse, node.body))
        freezes = "requires_grad = False" in text or "requires_grad_(False)" in text
        plain = len(node.body) == 1 and not isinstance(node.body[0], ast.If)
        touched = any(word in text for word in ("grad", "data", "_(", "add", "copy"))
        for each in over.held or ():
            for part in parts_of(each):
                part.excused |= touched
                part.frozen = (freezes and plain and not self.conditions) if "requires_grad" in text else part.frozen
        if over.held is None and touched:
            self.happens("unknown", None, node)
        if touched and not freezes:
            self.happens("by hand", None, node)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        before = self.graph
        for item in node.items:
            name = dotted_name(item.context_expr, {}).rpartition(".")[2]
            if name in ("no_grad", "inference_mode"):
                self.graph = False
            elif name == "enable_grad":
                self.graph = True
            elif name == "set_grad_enabled":
                self.graph = "False" not in ast.unparse(item.context_expr)
            else:
                value = self.value(item.context_expr)
                if item.optional_vars is not None:
                    self.bind(item.optional_vars, value)
        self.body(node.body)
        self.graph = before


def _ends(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break))
