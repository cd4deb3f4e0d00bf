"""A script that has been followed to its end, and what its judges ask of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.libraries import is_complete, trains_nothing
from stayfinite.readers.configs.program.names import dotted_name
from stayfinite.readers.configs.updates.expressions import TooLong
from stayfinite.readers.configs.updates.following import Follower
from stayfinite.readers.configs.updates.things import Event, Tensor, Thing, parts_of

_TRAINS_ITSELF = lazy_regex(
    r"register_\w*hook|post_accumulate|accelerat|deepspeed|lightning|torch\.func|functorch|functional_call|\bexec\(|"
    r"globals\(\)\[|torch\.distributed\.optim|__torch_function__|autograd\.Function"
)


_OF_A_GAME = lazy_regex(r"\benvs?\b|_envs?\b|\bgame\b|sched|wandb|prof")


class Program:
    """One script that has been followed."""

    def __init__(self, tree: ast.Module, text: str, *, whole: bool) -> None:
        self.tree = tree
        self.text = text
        self.code = ast.unparse(tree)
        """The text without its comments."""
        self.whole = whole
        """Whether no other code than libraries that train nothing is called: what is missing here is missing."""
        self.run = Follower(tree, trains_nothing)
        self.events = self.run.events
        self.optimizers = [each.thing for each in self.events if each.kind == "build" and each.thing is not None]
        self.nodes = list(ast.walk(tree))
        self._traced = {id(each.node) for each in self.events if each.thing is not None or each.kind == "backward"}

    def of(self, kind: str, thing: Thing | None = None) -> list[Event]:
        """The events of a kind, of one thing."""
        return [each for each in self.events if each.kind == kind and (thing is None or each.thing is thing)]

    def all_traced(self, *names: str) -> bool:
        """Whether each call of these methods was met, on something known."""
        calls = [each for each in self.nodes if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
        return all(
            id(each) in self._traced or _OF_A_GAME.search(ast.unparse(each.func)) is not None
            for each in calls
            if isinstance(each.func, ast.Attribute) and each.func.attr in names
        )

    def clears(self, event: Event, optimizer: Thing) -> bool:
        """Whether a `zero_grad` clears what an optimizer holds; so it is assumed where nobody can tell."""
        if event.thing is None or event.thing is optimizer:
            return True
        if event.thing.kind == "optimizer":
            theirs, own = event.thing.held, optimizer.held
            return theirs is None or own is None or bool(_leaves(theirs) & _leaves(own))
        return optimizer.held is None or bool(set(parts_of(event.thing)) & _leaves(optimizer.held))

    def leaves(self, optimizer: Thing) -> set[Thing]:
        """Every layer that an optimizer holds."""
        return _leaves(optimizer.held or [])

    def losses(self) -> list[tuple[Event, Tensor]]:
        """Each backward whose loss is known, with it."""
        return [(each, each.tensor) for each in self.of("backward") if isinstance(each.tensor, Tensor)]

    def path(self, part: Thing) -> str:
        """`model.head` of a layer: its own name below that of the model it belongs to."""
        if part.name and not part.name.startswith("self."):
            return part.name
        for each in self.run.things:
            if each.kind == "module" and part is not each:
                for key, value in each.parts.items():
                    if value is part:
                        above = self.path(each)
                        return f"{above}.{key}" if not key.isdigit() else f"{above}[{key}]"
        return part.name or part.layer or "a layer"


def followed(tree: ast.Module, text: str) -> Program | None:
    """The program; None where a framework trains it, or where nothing is trained."""
    if _TRAINS_ITSELF.search(text) or ("optim" not in text and ".backward" not in text):
        return None
    try:
        return Program(tree, text, whole=is_complete(tree))
    except (TooLong, RecursionError):
        return None


def _leaves(held: list[Thing]) -> set[Thing]:
    return {part for each in held for part in parts_of(each)}


def named_only(tree: ast.Module) -> Iterator[tuple[str, ast.Attribute]]:
    """``(method, node)`` of each statement that names a method and does not call it: `loss.backward`."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        method = value.attr if isinstance(value, ast.Attribute) and dotted_name(value, {}) else ""
        if isinstance(value, ast.Attribute) and method in ("backward", "step", "zero_grad"):
            yield method, value
