"""What a remedy is given: the program's text, the top finding, and where the training loop is in it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from stayfinite.doctor.patching.text import Text, called, owner_of
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told


@dataclass(frozen=True)
class Case:
    """A finding in a text."""

    text: Text
    top: Told
    program: Program

    @cached_property
    def statement(self) -> ast.stmt | None:
        """The statement that the finding names."""
        return self.text.statement_at(self.top.place[1])

    @cached_property
    def backward(self) -> ast.stmt | None:
        """The statement with the most backward calls."""
        losses = self.program.losses
        return self.text.statement_at(max(losses, key=lambda each: len(losses[each]), default=("", 0))[1])

    def calling(self, name: str) -> list[ast.Expr]:
        """Statements ``x.name(...)`` in the same function as backward."""
        function = None if self.backward is None else self.text.function_round(self.backward)
        return [
            node
            for node in self.text.nodes(ast.Expr)
            if called(node.value) == name and self.text.function_round(node) is function
        ]

    @cached_property
    def optimizer(self) -> str:
        """The program's name for its optimizer."""
        owners = [owner_of(node.value) for node in self.calling("step")]
        names = [self.text.source(owner) for owner in owners if owner is not None]
        return next((name for name in names if "opt" in name.lower()), names[0] if names else "optimizer")

    @property
    def optimizer_steps(self) -> list[ast.Expr]:
        """Statements that step the optimizer."""
        return [each for each in self.calling("step") if self.text.source(each).startswith(self.optimizer)]


Remedy = Callable[[Case], Iterator[str]]
"""Yields candidate texts for a finding, likeliest first."""


def number_in(node: ast.AST) -> float | None:
    """The value of a number literal, else None."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return None
    return float(node.value) if isinstance(node.value, int | float) else None
