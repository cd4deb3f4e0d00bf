"""What expressions of a followed script stand for. Values are not computed; what cannot be told is None."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from stayfinite.readers.configs.updates.things import (
    Class,
    Event,
    Frame,
    Function,
    Tensor,
    Thing,
    Value,
    merged,
    mixed,
    parts_of,
)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_NODES = 60_000
_CUTS = frozenset({"data", "shape", "dtype", "device", "ndim"})
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
DATA = Tensor()
"""A value that no layer computed."""
NOTHING, TRUE, FALSE = Tensor(), Tensor(), Tensor()
"""Those of the language, told apart by identity."""


class TooLong(Exception):
    """The script is too long to be followed."""


class Expressions:
    """One script, and what its names stand for at the moment."""

    def __init__(self, tree: ast.Module, is_library: Callable[[str], bool]) -> None:
        self.frame = Frame()
        self.main = self.frame
        self.events: list[Event] = []
        self.loops: list[ast.AST] = []
        self.conditions: list[tuple[ast.AST, str]] = []
        self.graph = True
        self.calls: list[ast.AST] = []
        """The functions that are being followed."""
        self.followed: set[ast.AST] = set()
        self.things: list[Thing] = []
        self.aliases = {name: module for name, module in _imported(tree).items() if is_library(module)}
        self.functions: dict[str, list[tuple[ast.ClassDef | None, ast.AST]]] = {}
        for owner, node in _functions(tree):
            self.functions.setdefault(node.name, []).append((owner, node))
        self._left = _MOST_NODES

    def body(self, statements: Sequence[ast.stmt]) -> None:
        """Execute statements."""
        raise NotImplementedError

    def happens(self, kind: str, thing: Thing | None, node: ast.AST, tensor: Value = None) -> None:
        """Record an event."""
        if kind == "step" and thing is not None and thing.held:
            trained = [part for each in thing.held for part in parts_of(each) if part.is_trained]
            thing.stepped_frozen = bool(trained) and all(each.frozen for each in trained)
        self.events.append(Event(kind, thing, node, tuple(self.loops), tuple(self.conditions), tensor))

    def made(self, kind: str, node: ast.AST, layer: str = "", by: ast.ClassDef | None = None) -> Thing:
        """A new thing."""
        thing = Thing(kind, node, layer, by)
        self.things.append(thing)
        return thing

    @contextmanager
    def entered(self, frame: Frame) -> Iterator[None]:
        """The names of a call."""
        before, self.frame = self.frame, frame
        try:
            yield
        finally:
            self.frame = before

    @contextmanager
    def within(self, condition: ast.AST, branch: str) -> Iterator[None]:
        """A branch."""
        self.conditions.append((condition, branch))
        try:
            yield
        finally:
            self.conditions.pop()

    @contextmanager
    def looped(self, loop: ast.AST) -> Iterator[None]:
        """A loop."""
        self.loops.append(loop)
        try:
            yield
        finally:
            self.loops.pop()

    def bind(self, target: ast.expr, value: Value) -> None:
        """`target = value`."""
        if isinstance(target, ast.Name):
            frame = self.frame
            while target.id in frame.shared and frame.outer is not None:
                frame = frame.outer
            frame.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = list(value.parts.values()) if isinstance(value, Thing) and value.kind == "list" else []
            fits = len(parts) == len(target.elts) and isinstance(value, Thing) and not value.open
            for place, each in enumerate(target.elts):
                self.bind(each, parts[place] if fits else value if isinstance(value, Tensor) else None)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, value if isinstance(value, Tensor) else None)
        elif isinstance(target, ast.Attribute):
            self._set_attribute(target, value)
        elif isinstance(target, ast.Subscript):
            holder = self.value(target.value)
            if isinstance(holder, Tensor) and isinstance(target.value, (ast.Name, ast.Attribute, ast.Subscript)):
                self.bind(target.value, mixed([holder, value], graph=self.graph))
            elif isinstance(holder, Thing):
                key = _key(target.slice)
                holder.open |= key is None or holder.kind != "list"
                holder.parts[key if key is not None else f"?{len(holder.parts)}"] = value

    def _set_attribute(self, target: ast.Attribute, value: Value) -> None:
        holder = self.value(target.value)
        if isinstance(holder, Tensor) and isinstance(target.value, ast.Name) and isinstance(value, (Thing, Function)):
            holder = self.made("object", target)  # of argparse or SimpleNamespace
            holder.open = True
            self.bind(target.value, holder)
        if target.attr == "requires_grad":
            on = ast.unparse(target.value)
            if isinstance(target.value, (ast.Name, ast.Attribute)) and isinstance(holder, Tensor):
                self.bind(target.value, self.leaf(target, holder))
            for each in parts_of(holder):
                each.excused, each.frozen = True, False
            if holder is None and ("weight" in on or "bias" in on):
                owner = self.value(target.value.value) if isinstance(target.value, ast.Attribute) else None
                for each in parts_of(owner):
                    each.excused, each.frozen = True, False
        elif target.attr == "grad" or (target.attr == "data" and not _holds_parts(holder)):
            self.happens("by hand", holder if isinstance(holder, Thing) else None, target)
            of_layer = isinstance(target.value, ast.Attribute) and target.value.attr in ("weight", "bias")
            owner = self.value(target.value.value) if of_layer and isinstance(target.value, ast.Attribute) else holder
            for each in parts_of(owner):
                each.excused = True
        elif isinstance(holder, Thing):
            if self.conditions and target.attr in holder.parts:
                value = merged(holder.parts[target.attr], value)
            holder.parts[target.attr] = value

    def leaf(self, node: ast.AST, made_of: Value) -> Value:
        """A tensor that asks for a gradient; one that a model computed and that was cut off is none."""
        if isinstance(made_of, Tensor) and (made_of.seen or made_of.sources):
            return made_of
        return self.made("leaf", node)

    def value(self, node: ast.AST | None) -> Value:
        """What an expression stands for."""
        from stayfinite.readers.configs.updates.calling import called

        self._left -= 1
        if self._left < 0:
            raise TooLong
        if isinstance(node, ast.Constant):
            return constant(node)
        if node is None or isinstance(node, ast.JoinedStr):
            return DATA
        if isinstance(node, ast.Name):
            found = self.frame.find(node.id)
            return DATA if found is None and node.id in self.aliases else found
        if isinstance(node, ast.Call):
            return called(self, node)
        if isinstance(node, ast.Attribute):
            return self.attribute(node, self.value(node.value))
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return self._list(node, node.elts)
        if isinstance(node, ast.Dict):
            return self._dict(node)
        if isinstance(node, _COMPREHENSIONS):
            return self._comprehension(node)
        if isinstance(node, ast.Subscript):
            return self._entry(node)
        if isinstance(node, ast.IfExp):
            with self.within(node, "body"):
                chosen = self.value(node.body)
            with self.within(node, "else"):
                return merged(chosen, self.value(node.orelse))
        if isinstance(node, ast.Lambda):
            return Function(node, self.frame)
        if isinstance(node, ast.Starred):
            return self.value(node.value)
        if isinstance(node, ast.NamedExpr):
            value = self.value(node.value)
            self.bind(node.target, value)
            return value
        if isinstance(node, ast.BinOp):
            return self._operation(node)
        parts = [self.value(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        if isinstance(node, ast.Compare):
            return Tensor(frozenset(), mixed(parts).seen)
        return mixed(parts, graph=self.graph) if isinstance(node, (ast.UnaryOp, ast.BoolOp)) else None

    def _operation(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, Thing) and isinstance(right, Thing) and left.kind == right.kind == "params":
            return self.params(node, [left, right])
        if isinstance(left, Thing) and isinstance(right, Thing) and left.kind == right.kind == "list":
            both = self.made("list", node)
            both.open = left.open or right.open
            both.parts = {str(place): each for place, each in enumerate([*left.parts.values(), *right.parts.values()])}
            return both
        if isinstance(left, Thing) and left.kind == "list" and isinstance(node.op, ast.Mult):
            left.open = True
            return left
        return mixed([left, right], graph=self.graph)

    def params(self, node: ast.AST, values: Iterable[Value]) -> Thing:
        """Parameters of several models; unknown if one of them is."""
        both = self.made("params", node)
        held: list[Thing] | None = []
        for each in values:
            if isinstance(each, Thing) and each.kind == "leaf":
                more: list[Thing] | None = [each]
            else:
                more = each.held if isinstance(each, Thing) and each.kind == "params" else None
            held = None if held is None or more is None else held + more
        both.held = held
        return both

    def _list(self, node: ast.AST, elements: Sequence[ast.expr]) -> Thing:
        made = self.made("list", node)
        for each in elements:
            value = self.value(each)
            if isinstance(each, ast.Starred):
                inner = list(value.parts.values()) if isinstance(value, Thing) and value.kind == "list" else [value]
                made.open |= len(inner) != 1 or inner[0] is not value or not isinstance(value, Thing)
            else:
                inner = [value]
            for part in inner:
                made.parts[str(len(made.parts))] = part
        return made

    def _dict(self, node: ast.Dict) -> Thing:
        made = self.made("list", node)
        for key, each in zip(node.keys, node.values, strict=True):
            made.open |= key is None
            place = _key(key) if key is not None else None
            made.parts[place if place is not None else f"?{len(made.parts)}"] = self.value(each)
        return made

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        first = node.generators[0]
        over = self.value(first.iter)
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        if isinstance(over, Thing) and over.kind == "params":
            same = (
                isinstance(element, ast.Name) and ast.unparse(first.target) == element.id and len(node.generators) == 1
            )
            plain = all(ast.unparse(each).endswith(".requires_grad") for each in first.ifs)
            return over if same and plain else None
        with self.entered(Frame(self.frame)), self.looped(node):
            over_things = isinstance(over, Thing) and over.kind in ("list", "module") and not over.open
            found = list(over.parts.values())[:64] if over_things and isinstance(over, Thing) else [over]
            made = self.made("list", node)
            made.open = not over_things
            for each in found:
                self.bind(first.target, each if over_things or isinstance(each, Tensor) else None)
                for more in node.generators[1:]:
                    inner = self.value(more.iter)
                    self.bind(more.target, inner if isinstance(inner, Tensor) else None)
                for test in first.ifs:
                    self.value(test)
                made.parts[str(len(made.parts))] = self.value(element)
            first_made = made.parts.get("0")
            if not over_things and isinstance(first_made, Thing) and first_made.kind in ("module", "leaf"):
                made.parts["1"] = self.value(element)  # the first, and those that follow
        tensors = all(isinstance(each, Tensor) for each in made.parts.values())
        return mixed(made.parts.values()) if tensors and made.parts else made

    def attribute(self, node: ast.Attribute, holder: Value) -> Value:
        """What `holder.name` stands for."""
        if isinstance(holder, Thing):
            if node.attr in holder.parts:
                return holder.parts[node.attr]
            if node.attr == "module" and holder.kind == "module":
                return holder
            method = self.method(holder.made_by, node.attr)
            if method is not None:
                return Function(method, self.main, holder, is_method=True)
            if holder.kind == "object" and holder.made_by is None:
                return DATA
            return Tensor(frozenset(), frozenset({holder})) if holder.kind == "leaf" and node.attr in _CUTS else None
        if isinstance(holder, Tensor) and holder is not DATA:
            return Tensor(frozenset(), holder.seen) if node.attr in _CUTS else holder
        if _root(node) in self.aliases and self.frame.find(_root(node)) is None:
            return DATA
        if isinstance(holder, Class):
            method = self.method(holder.node, node.attr)
            return Function(method, self.main) if method is not None else None
        return holder if isinstance(holder, Tensor) else None

    def method(self, owner: ast.ClassDef | None, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """A method of a class or of its bases in this script."""
        for _ in range(8):
            if owner is None:
                return None
            for each in owner.body:
                if isinstance(each, FUNCTIONS) and each.name == name:
                    return each
            bases = [self.main.find(each.id) for each in owner.bases if isinstance(each, ast.Name)]
            owner = next((each.node for each in bases if isinstance(each, Class) and each.node is not owner), None)
        return None

    def _entry(self, node: ast.Subscript) -> Value:
        holder = self.value(node.value)
        self.value(node.slice)
        if not isinstance(holder, Thing):
            return holder if isinstance(holder, Tensor) else None
        key = _key(node.slice)
        if key in holder.parts and not (holder.open and key is not None and key.isdigit() and key != "0"):
            return holder.parts[key]
        tensors = [each for each in holder.parts.values() if isinstance(each, Tensor)]
        if holder.kind == "leaf" or (tensors and len(tensors) == len(holder.parts)):
            return mixed([holder], graph=self.graph)
        return None


def _functions(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            for each in node.body:
                if isinstance(each, FUNCTIONS):
                    yield node if isinstance(node, ast.ClassDef) else None, each


def _imported(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                name = each.asname or each.name.partition(".")[0]
                found[name] = each.name if each.asname else name
        elif isinstance(node, ast.ImportFrom):
            found.update({each.asname or each.name: f"{node.module}.{each.name}" for each in node.names})
    return found


def name_after(value: Value, target: ast.expr) -> None:
    """Name a thing after what it is first assigned to."""
    if isinstance(target, ast.Tuple) and isinstance(value, Thing) and len(value.parts) == len(target.elts):
        for part, each in zip(value.parts.values(), target.elts, strict=True):
            name_after(part, each)
    elif isinstance(value, Thing) and not value.name:
        value.name = ast.unparse(target)


def _holds_parts(holder: Value) -> bool:
    return isinstance(holder, Thing) and holder.kind in ("module", "object")


def constant(node: ast.Constant) -> Tensor:
    """What a constant stands for."""
    return NOTHING if node.value is None else TRUE if node.value is True else FALSE if node.value is False else DATA


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _key(node: ast.AST) -> str | None:
    return str(node.value) if isinstance(node, ast.Constant) else None
