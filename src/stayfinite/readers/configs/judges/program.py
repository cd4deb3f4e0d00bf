"""A script that has been followed to its end: its text, its updates, and what the judges of both ask."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.gradients import Reach, is_module
from stayfinite.readers.configs.course.picking import MODULES, parts_in
from stayfinite.readers.configs.course.terms import Term
from stayfinite.readers.configs.course.updates import Update, Updates

_OF_A_GAME = lazy_regex(r"\benvs?\b|_envs?\b|\bgame\b|sched|wandb|prof")


class Program(Updates):
    """One script that has been followed."""

    def __init__(self, course: Course, text: str, nodes: Sequence[ast.AST], *, whole: bool) -> None:
        super().__init__(course)
        self.text = text
        self.whole = whole
        """Whether no other code than libraries that train nothing is called: what is missing here is missing."""
        self.optimizers = [each.thing for each in self.found if each.kind == "build" and each.thing is not None]
        self.nodes = nodes
        self._traced = {id(each.node) for each in self.found if each.thing is not None or each.kind == "backward"}

    def of(self, kind: str, thing: Term | None = None) -> list[Update]:
        """The events of a kind, of one thing."""
        return [each for each in self.found if each.kind == kind and (thing is None or each.thing is thing)]

    def all_traced(self, *names: str) -> bool:
        """Whether each call of these methods was met, on something known."""
        calls = [each for each in self.nodes if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
        return all(
            id(each) in self._traced or _OF_A_GAME.search(ast.unparse(each.func)) is not None
            for each in calls
            if isinstance(each.func, ast.Attribute) and each.func.attr in names
        )

    def holds(self, optimizer: Term) -> list[Term] | None:
        """The models and tensors that an optimizer holds; None where nobody can tell."""
        return self.held.get(id(optimizer))

    def clears(self, event: Update, optimizer: Term) -> bool:
        """Whether a `zero_grad` clears what an optimizer holds; so it is assumed where nobody can tell."""
        if event.thing is None or event.thing is optimizer or self.holds(optimizer) is None:
            return True
        if id(event.thing) in self.held:
            return self.holds(event.thing) is None or bool(self.leaves(event.thing) & self.leaves(optimizer))
        return bool({id(each) for each in self.parts(event.thing)} & self.leaves(optimizer))

    def losses(self) -> list[tuple[Update, Reach]]:
        """Each backward whose loss is known, with it."""
        return [(each, each.loss) for each in self.of("backward") if each.loss is not None]

    def name(self, thing: Term) -> str:
        """What a value is first called."""
        return self.course.titles.get(id(thing), "")

    def path(self, part: Term) -> str:
        """`model.head` of a layer: its own name below that of the model it belongs to."""
        name = self.name(part)
        if name and not name.startswith("self."):
            return name
        for owner in self.course.terms:
            if owner.op in MODULES and part is not owner and is_module(owner):
                for key, value in _children(owner):
                    if value is part:
                        return f"{self.path(owner)}[{key}]" if isinstance(key, int) else f"{self.path(owner)}.{key}"
        return name or part.last or "a layer"

    def names(self, parts: list[Term]) -> str:
        """The first three of these layers."""
        return ", ".join(sorted({self.path(each) for each in parts})[:3])


def _children(owner: Term) -> list[tuple[object, Term]]:
    """The layers of a model by attribute or place."""
    if owner.op == "made":
        return list(enumerate(parts_in(owner) or owner.parts))
    named: list[tuple[object, Term]] = []
    for key, value in owner.attributes.items():
        if value.op == "either":
            named += [(key, each) for each in value.parts]
        named.append((key, value))
    return named
