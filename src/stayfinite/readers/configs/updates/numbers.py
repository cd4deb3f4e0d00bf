"""Numbers of a script by their names, where all that the script says of a name agrees."""

from __future__ import annotations

import ast

_DEEPEST = 8


class Numbers:
    """Every name that a script gives one number: a constant, an option's default, an entry of a dict."""

    def __init__(self, tree: ast.Module) -> None:
        self._found: dict[str, list[ast.expr | None]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._assign(node.target, node.value)
            elif isinstance(node, ast.AugAssign):
                self._take(_last(node.target), None)
            elif isinstance(node, ast.Call):
                self._take_option(node)
            elif isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        self._take(key.value, value)
            elif isinstance(node, ast.arguments):
                names = [each.arg for each in (*node.posonlyargs, *node.args)]
                for name, value in zip(names[len(names) - len(node.defaults) :], node.defaults, strict=False):
                    self._take(name, value)

    def of(self, node: ast.expr | None, depth: int = 0) -> float | None:
        """The number of an expression; None where nobody can tell."""
        if node is None or depth > _DEEPEST:
            return None
        if isinstance(node, ast.Constant):
            return float(node.value) if isinstance(node.value, (int, float)) else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.of(node.operand, depth + 1)
            return None if inner is None else -inner
        if isinstance(node, ast.BinOp):
            return self._operation(node, depth)
        known = self.expression(node)
        return None if known is None else self.of(known, depth + 1)

    def expression(self, node: ast.expr) -> ast.expr | None:
        """What the script says of a name; None where it says several things."""
        values = self._found.get(_last(node), [])
        texts = {None if each is None else ast.dump(each) for each in values}
        return values[0] if len(texts) == 1 and values else None

    def _operation(self, node: ast.BinOp, depth: int) -> float | None:
        left, right = self.of(node.left, depth + 1), self.of(node.right, depth + 1)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, (ast.Div, ast.FloorDiv)) and right:
            return left / right if isinstance(node.op, ast.Div) else left // right
        return None

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            for place, each in enumerate(target.elts):
                self._take(_last(each), values[place] if values is not None else None)
        else:
            name = _last(target)
            if not (isinstance(value, (ast.Name, ast.Attribute)) and _last(value) == name):  # self.lr = lr
                self._take(name, value)

    def _take_option(self, call: ast.Call) -> None:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
            return
        told = {each.arg: each.value for each in call.keywords}
        flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        names = [each for each in flags if each.startswith("--")] or flags
        if names:
            self._take(names[0].lstrip("-").replace("-", "_"), told.get("default"))

    def _take(self, name: str, value: ast.expr | None) -> None:
        if name:
            self._found.setdefault(name, []).append(value)


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return node.slice.value if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str) else ""
    return node.id if isinstance(node, ast.Name) else ""
