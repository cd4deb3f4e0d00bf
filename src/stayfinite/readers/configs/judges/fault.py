"""One fault of a script, before its file is known."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from stayfinite.core.settings import CodeFault, When


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, where it is, and whether training survives it."""

    cause: str
    text: str
    line: int
    sure: bool = True
    mild: bool = False
    when: When = ""
    """The symptom without which it is none."""
    fix: str = ""
    fact: bool = False
    """Whether it holds whatever else the program does."""

    def told(self, source: str = "", *, whole: bool = False) -> CodeFault:
        """The same for settings; of the script itself without ``source``."""
        where = f"{source}:{self.line}" if source else str(self.line)
        return CodeFault(self.cause, self.text, where, self.sure, self.mild, self.when, self.fix, self.fact, whole)


def seen_at(
    cause: str, text: str, node: ast.AST, *, sure: bool = True, mild: bool = False, when: When = "", fix: str = ""
) -> Fault:
    """A fault that one piece of code shows, with that code in its words."""
    shown = f"{text}: {ast.unparse(node).splitlines()[0][:120]}"
    return Fault(cause, shown, getattr(node, "lineno", 0), sure, mild, when, fix, fact=sure and not mild)
