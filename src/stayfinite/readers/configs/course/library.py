"""Other people's code: what its names are short for, and whether it could train behind a script's back."""

from __future__ import annotations

import ast
import builtins

from stayfinite.readers.configs.course.terms import Term, is_layer
from stayfinite.readers.configs.libraries import trains_nothing

FOREIGN = "foreign"
"""What a `library` term holds whose code could do anything."""
_SHORT = {"nn.functional": "F", "numpy": "np", "torch.nn.functional": "F", "torch.nn": "nn", "torch.functional": "F"}
_THROUGH = frozenset({"attribute", "method", "index", "part", "each", "applied", "entered", "starred", "batch"})


def short_name(name: str) -> str:
    """A library's name as people write it, whatever it was imported as."""
    for long, short in _SHORT.items():
        if name == long or name.startswith(f"{long}."):
            return short + name.removeprefix(long)
    return name


def import_of(name: str, node: ast.AST, module: str) -> Term:
    """What an import binds."""
    return Term("library", short_name(name), node=node, data=None if trains_nothing(module) else FOREIGN)


def global_name(name: str, node: ast.AST) -> Term:
    """A name that the script does not define."""
    known = name.startswith("__") or hasattr(builtins, name)
    return Term("library", name, node=node, data=None if known else FOREIGN)


def is_foreign(term: Term, results: set[int]) -> bool:
    """Whether a value comes from code that nobody sees; ``results`` are those of its calls."""
    for _ in range(40):
        if id(term) in results:
            return True
        if term.op == "either":
            return any(
                each.op in ("instance", "function") or is_layer(each) or each.data is FOREIGN for each in term.parts
            )
        if term.op == "attribute" and term.parts and term.parts[0].op == "instance":
            return True
        if term.op not in _THROUGH or not term.parts:
            break
        term = term.parts[0]
    return term.op in ("unknown", "super") or (term.op == "library" and term.data is FOREIGN)
