"""Follow a script's statements in order, its functions at each call, loops twice and both sides of a branch."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from stayfinite.readers.configs.course.pages import Pages
from stayfinite.readers.configs.course.picking import (
    FOREIGN,
    MODULES,
    import_of,
    item_of,
    items_of,
    parts_in,
    parts_of,
    truth,
)
from stayfinite.readers.configs.course.terms import (
    HIDDEN,
    NONE,
    UNKNOWN,
    Conditions,
    Event,
    Frame,
    Modes,
    Term,
    all_from,
    constant,
    joined_modes,
)

MOST_STEPS = 60_000
MOST_PARTS = 200
"""Of a list that grows."""
MOST_CALLS = 14
"""Nested ones."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MOVES = frozenset({
    "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "apply", "requires_grad_", "share_memory", "type",
})  # fmt: skip
"""Methods that return the model they are called on."""


class TooMuch(Exception):
    """The script is larger than is worth following."""


class Course:
    """What a script does, in order."""

    def __init__(
        self, tree: ast.Module, compute: Callable[[Course, ast.expr], Term], pages: Pages | None = None
    ) -> None:
        self.tree = tree
        self.pages = pages or Pages(tree)
        self._modules: dict[int, Term] = {}
        self._file = ""
        self.events: list[Event] = []
        self.terms: list[Term] = []
        self.frames = [Frame()]
        self.modes: Modes = {}
        self.passes: list[tuple[int, int]] = []
        self.loops: dict[int, ast.AST] = {}
        self.over: dict[int, Term] = {}
        """What each loop goes over."""
        self.conditions: Conditions = ()
        self.titles: dict[int, str] = {}
        """The first name of what is made."""
        self.foreign: set[int] = set()
        """Results of code that nobody sees."""
        self.copies: set[int] = set()
        self.named: list[tuple[Frame, ast.Name, Term]] = []
        """Every name that a value was given, in order."""
        self.loose: set[int] = set()
        """Lists that may hold more or less than is known."""
        self.ends: dict[int, Term] = {}
        """The last item of lists that grow."""
        self.tails: dict[int, tuple[Term, ...]] = {}
        """What lists certainly end with, though their beginning is not known."""
        self.spread: set[int] = set()
        """Models that are trained on several devices: `DistributedDataParallel(model)`."""
        self.framed = False
        """Whether a framework runs backward and the steps."""
        self.fleeting: set[int] = set()
        """Layers that a forward makes."""
        self.calls: list[Any] = []
        """The functions that are being followed."""
        self.defined: list[Term] = []
        """The functions and classes of the script, in order."""
        self.followed: set[ast.AST] = set()
        """The functions that were called."""
        self.returned: dict[ast.AST, list[Term]] = {}
        """What each of them gave back."""
        self.guesses = False
        """Whether names that nothing sets are kept, and unknown parameters stand for models of their name."""
        self._methods: dict[str, list[ast.stmt]] | None = None
        self.learns = True
        self.doubt = 0
        self.depth = 0
        self.steps = 0
        self.ended = ""
        self.broken: list[list[Modes]] = []
        self._compute = compute

    @cached_property
    def code(self) -> str:
        """The source without its comments."""
        return "\n".join(map(ast.unparse, self.pages.trees))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the script."""
        return list(self.pages.nodes)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """What directly encloses each node."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What encloses a node, the nearest first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def tests_around(self, node: ast.AST) -> str:
        """The conditions under which a node is reached, as text."""
        inside = [each for each in self.around(node) if isinstance(each, (ast.If, ast.IfExp))]
        return " ".join(ast.unparse(each.test) for each in inside)

    @cached_property
    def learned(self) -> set[int]:
        """At the end: identities of all values that some backward reaches."""
        return {id(each) for each in all_from(each.term for each in self.events if each.kind == "backward")}

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def term(self, op: str, name: str = "", parts: tuple[Term, ...] = (), node: Any = None, data: Any = None,
             keywords: dict[str, Term] | None = None) -> Term:  # fmt: skip
        """A new value."""
        made = Term(op, name, parts, keywords or {}, node, data, passes=tuple(self.passes), learns=self.learns)
        self.terms.append(made)
        return made

    def value(self, node: ast.expr | None) -> Term:
        """The value of an expression."""
        return NONE if node is None else self._compute(self, node)

    def tell(self, kind: str, term: Term, result: Term, node: Any, given: tuple[Term, ...] = ()) -> None:
        """Note an event."""
        mode = self.modes.get(id(term), frozenset({"train"}))
        self.events.append(
            Event(kind, term, result, node, self.learns, mode, tuple(self.passes), not self.doubt, given,
                  self.conditions, len(self.terms))
        )  # fmt: skip

    @contextmanager
    def under(self, condition: ast.AST, branch: str) -> Iterator[None]:
        """Follow a branch."""
        before = self.conditions
        self.conditions = (*before, (condition, branch)) if branch else before
        self.doubt += 1
        yield
        self.conditions, self.doubt = before, self.doubt - 1

    def find(self, name: str) -> Term | None:
        """The value of a name."""
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.outer
        return None

    def guessed(self, name: str) -> Term | None:
        """The model of the module that a parameter of this name may stand for."""
        found = self.frames[0].names.get(name) if self.guesses else None
        return found if found is not None and found.op in MODULES else None

    def bind(self, name: str, value: Term) -> None:
        """Give a name its value."""
        frame = self.frames[0] if name in self.frame.globals else self.frame
        while name in frame.nonlocals and frame.outer is not None:
            frame = frame.outer
        frame.names[name] = value

    def only_method(self, name: str) -> ast.stmt | None:
        """The method of this name, if there is one."""
        if self._methods is None:
            self._methods = {}
            for owner in (each for each in ast.walk(self.tree) if isinstance(each, ast.ClassDef)):
                for each in owner.body:
                    if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        self._methods.setdefault(each.name, []).append(each)
        found = self._methods.get(name, [])
        return found[0] if len(found) == 1 and found[0] not in self.calls else None

    def either(self, values: list[Term]) -> Term:
        """One of these."""
        kept = list({id(each): each for each in values}.values())
        library = next((each for each in kept if each.op == "library"), None)
        if library is not None and all(each.op in ("library", "const") for each in kept):
            return library  # imported from one of several places
        return kept[0] if len(kept) == 1 else self.term("either", parts=tuple(kept))

    # --- statements ---------------------------------------------------------------------------------------------

    def run(self, body: list[ast.stmt]) -> bool:
        """Follow statements; return whether they leave the function or the pass of the loop."""
        for statement in body:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise TooMuch
            look = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if look is not None and look(statement):
                return True
        return False

    def _expr(self, node: ast.Expr) -> bool:
        self.value(node.value)
        return constant_exit(node.value)

    def _assign(self, node: ast.Assign) -> bool:
        value = self.value(node.value)
        for target in node.targets:
            value = self._as_model(target, value)
            self.give(target, value)
            self._entitle(target, value)
        return False

    @cached_property
    def _with_parameters(self) -> set[str]:
        """What `parameters()` is asked of."""
        return {ast.unparse(each.value) for each in self.nodes
                if isinstance(each, ast.Attribute) and each.attr == "parameters"}  # fmt: skip

    def _as_model(self, target: ast.expr, value: Term) -> Term:
        """A model that code makes which nobody sees: `model = build(config).cuda()`."""
        made = value
        while made.op == "method" and made.name in MOVES:
            made = made.parts[0]
        if made.op != "call" or id(made) not in self.foreign or ast.unparse(target) not in self._with_parameters:
            return value
        made.op, made.data = "made", HIDDEN
        return made

    def _entitle(self, target: ast.expr, value: Term) -> None:
        """Remember what a value is first called."""
        if isinstance(target, ast.Tuple) and value.op == "row" and len(value.parts) == len(target.elts):
            for part, each in zip(value.parts, target.elts, strict=True):
                self._entitle(each, part)
        elif value.op in ("made", "instance", "call", "method"):
            self.titles.setdefault(id(value), ast.unparse(target))

    def _annassign(self, node: ast.AnnAssign) -> bool:
        if node.value is not None:
            self.give(node.target, self.value(node.value))
        return False

    def _augassign(self, node: ast.AugAssign) -> bool:
        load = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
        before, more = self.value(load), self.value(node.value)
        after = self.term("binary", type(node.op).__name__, (before, more), node, "more")
        if before.op == more.op == "row" and len(before.parts) < MOST_PARTS:
            after = self.term("row", parts=(*parts_in(before), *parts_in(more)), node=node, data="grown")
            self.loose.add(id(after))
            if more.data != "grown" and not self.doubt and not self.passes:
                self.tails[id(after)] = more.parts
        self.tell("augmented", before, after, node)
        self.give(node.target, after)
        return False

    def give(self, target: ast.expr, value: Term) -> None:
        """Assign."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
            self.named.append((self.frame, target, value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = parts_of(self, value, len(target.elts))
            for each, part in zip(target.elts, parts, strict=True):
                self.give(each.value if isinstance(each, ast.Starred) else each, part)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            before = owner.attributes.get(target.attr)
            if target.attr == "training":
                self.modes[id(owner)] = frozenset({"train", "eval"})
            owner.attributes[target.attr] = self.either([before, value]) if self.doubt and before else value
            self.tell("attribute", owner, value, target)
        elif isinstance(target, ast.Subscript):
            owner, key = self.value(target.value), self.value(target.slice)
            if owner.op == "dict":
                name = constant(key)
                before = owner.attributes.get(name, UNKNOWN)
                owner.attributes[name] = self.either([before, value]) if self.doubt else value
                if name is None:
                    owner.data = "grown"
                return
            changed = self.term("set", parts=(owner, key, value), node=target)
            if isinstance(target.value, (ast.Name, ast.Attribute)):
                self.give(target.value, changed)

    def _if(self, node: ast.If) -> bool:
        known = truth(self.value(node.test))
        if known is not None:
            return self.run(node.body if known else node.orelse)
        return self._branches([(node, "body", node.body), (node, "else", node.orelse)])

    def _branches(self, ways: list[tuple[ast.AST, str, list[ast.stmt]]]) -> bool:
        """Follow each way from the same state, and join what they leave."""
        names, modes = dict(self.frame.names), dict(self.modes)
        ends: list[dict[str, Term]] = []
        all_modes: list[Modes] = []
        for condition, branch, body in ways:
            self.frame.names.clear()
            self.frame.names.update(names)
            self.modes = dict(modes)
            with self.under(condition, branch):
                left = self.run(body)
            if not left or self.ended == "continue":
                all_modes.append(self.modes)
            if not left:
                ends.append(dict(self.frame.names))
        self.modes = joined_modes(all_modes) if all_modes else modes
        if not ends:
            return True
        for name in {name for end in ends for name in end}:
            self.frame.names[name] = self.either([end[name] for end in ends if name in end])
        return False

    def _for(self, node: ast.For) -> bool:
        over = self.value(node.iter)
        self.loops[id(node)], self.over[id(node)] = node, over
        listed = items_of(self, over, node)
        items: list[Term | None] = [*listed] or [None, None]
        self.broken.append([])
        for place, item in enumerate(items):
            self.passes.append((id(node), place if not listed else 0))
            self.give(node.target, item_of(self, over, node) if item is None else item)
            self.run(node.body)
            self.passes.pop()
        return self._looped(node)

    _asyncfor = _for

    def _while(self, node: ast.While) -> bool:
        self.loops[id(node)] = node
        self.broken.append([])
        for place in range(2):
            self.passes.append((id(node), place))
            self.value(node.test)
            self.run(node.body)
            self.passes.pop()
        return self._looped(node)

    def _looped(self, node: ast.For | ast.While) -> bool:
        """What follows a loop."""
        broken = self.broken.pop()
        if broken:
            self.modes = joined_modes([self.modes, *broken])
        if broken and node.orelse:
            self._branches([(node, "", node.orelse), (node, "", [])])
            return False
        return self.run(node.orelse)

    def _with(self, node: ast.With) -> bool:
        before = self.learns
        for item in node.items:
            value = self.value(item.context_expr)
            self.tell("entered", value, value, node)
            self.learns = _learns(value, now=self.learns)
            if item.optional_vars is not None:
                self.give(item.optional_vars, self.term("entered", parts=(value,), node=item.context_expr))
        left = self.run(node.body)
        self.learns = before
        return left

    _asyncwith = _with

    def _try(self, node: ast.Try) -> bool:
        whole = [*node.body, *node.orelse]
        ways: list[tuple[ast.AST, str, list[ast.stmt]]] = [(each, "except", each.body) for each in node.handlers]
        left = self._branches([(node, "", whole), *ways]) if ways else self.run(whole)
        return self.run(node.finalbody) or left

    def _functiondef(self, node: ast.FunctionDef) -> bool:
        made = self.function(node)
        self.defined.append(made)
        self.bind(node.name, made)
        return False

    _asyncfunctiondef = _functiondef

    def function(self, node: Any, owner: Term | None = None, of: ast.ClassDef | None = None) -> Term:
        """A function of the script, bound to the frame that it was defined in."""
        made = self.term("function", getattr(node, "name", "lambda"), node=node, data=(self.frame, owner, of))
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        for each, default in zip(reversed(positional), reversed(arguments.defaults), strict=False):
            made.attributes[each.arg] = self.value(default)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if default is not None:
                made.attributes[each.arg] = self.value(default)
        return made

    def _classdef(self, node: ast.ClassDef) -> bool:
        bases = tuple(self.value(each) for each in node.bases)
        made = self.term("class", node.name, bases, node, self.frame)
        for each in node.body:
            target = each.targets[0] if isinstance(each, ast.Assign) else getattr(each, "target", None)
            if isinstance(each, (ast.Assign, ast.AnnAssign)) and isinstance(target, ast.Name) and each.value:
                made.attributes[target.id] = self.value(each.value)
        self.defined.append(made)
        self.bind(node.name, made)
        return False

    def _return(self, node: ast.Return) -> bool:
        self.frame.results.append(self.value(node.value))
        self.frame.left.append(dict(self.modes))
        self.ended = "return"
        return True

    def _raise(self, _node: ast.Raise) -> bool:
        self.ended = "raise"
        return True

    def _break(self, _node: ast.Break) -> bool:
        self.ended = "break"
        if self.broken:
            self.broken[-1].append(dict(self.modes))
        return True

    def _continue(self, _node: ast.Continue) -> bool:
        self.ended = "continue"
        return True

    def _global(self, node: ast.Global) -> bool:
        self.frame.globals.update(node.names)
        return False

    def _nonlocal(self, node: ast.Nonlocal) -> bool:
        self.frame.nonlocals.update(node.names)
        return False

    def _import(self, node: ast.Import) -> bool:
        for each in node.names:
            name = each.name if each.asname else each.name.partition(".")[0]
            found = self._module(each.name, 0) if each.asname or "." not in each.name else None
            self.bind(each.asname or name, found or import_of(name, node, each.name))
        return False

    def _importfrom(self, node: ast.ImportFrom) -> bool:
        found = self._module(node.module or "", node.level)
        for each in node.names:
            module = "." * node.level + (node.module or "")
            if each.name == "*" and found is not None:
                self.frame.names.update({key: value for key, value in found.attributes.items() if key[0] != "_"})
                continue
            known = found.attributes.get(each.name) if found is not None else None
            known = known or self._module(f"{node.module}.{each.name}" if node.module else each.name, node.level)
            self.bind(each.asname or each.name, known or import_of(f"{node.module}.{each.name}", node, module))
        return False

    def _module(self, name: str, level: int) -> Term | None:
        """A module beside the script, followed when it is first imported."""
        page = self.pages.page(name, level, self._file)
        if not page:
            return None
        if page not in self._modules:
            frame = Frame()
            frame.names["__name__"] = self.term("const", data=name)
            self._modules[page] = Term("library", name, data=FOREIGN, attributes=frame.names)
            before = self.frames, self._file, self.passes, self.conditions, self.doubt, self.learns
            self.frames, self._file, self.passes, self.conditions = [frame], self.pages.files[page], [], ()
            self.doubt, self.learns = 0, True
            self.run(self.pages.trees[page].body)
            self.frames, self._file, self.passes, self.conditions, self.doubt, self.learns = before
        return self._modules[page]

    def _assert(self, node: ast.Assert) -> bool:
        self.value(node.test)
        return False


def constant_exit(node: ast.expr) -> bool:
    """Whether an expression ends the program."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("exit", "quit", "sys.exit", "os._exit")


_NO_GRAD = frozenset({"no_grad", "inference_mode"})


def _learns(value: Term, *, now: bool) -> bool:
    if value.last in _NO_GRAD and value.op in ("call", "made", "library"):
        return False
    if value.last == "set_grad_enabled":
        return truth(value.given(0, "mode") or UNKNOWN) is not False
    return True if value.last == "enable_grad" else now
