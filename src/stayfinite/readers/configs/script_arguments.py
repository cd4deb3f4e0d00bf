"""Arguments that a script declares, with defaults: argparse, click, absl, dataclasses, functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its name, its short name for `args.NAME`, and its default."""

    name: str
    attribute: str
    default: ast.expr
    line: int


def argument_of(call: ast.Call, last: str) -> Argument | None:
    """`parser.add_argument("--lr", default=1e-4)`, `click.option(...)`, `flags.DEFINE_float("lr", 1e-4, "...")`."""
    strings = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if not strings:
        return None
    keywords = {each.arg: each.value for each in call.keywords if each.arg}
    if last.startswith("DEFINE_"):
        default = keywords.get("default") or (call.args[1] if len(call.args) > 1 else None)
        return None if default is None else Argument(f"--{strings[0]}", strings[0], default, call.lineno)
    if last not in {"add_argument", "option"}:
        return None
    options = [each for each in strings if each.startswith("-")] or strings[:1]
    name = next((each for each in options if each.startswith("--")), options[0])
    default = keywords.get("default", _switch(keywords))
    if default is None:
        return None
    destination = keywords.get("dest")
    attribute = destination.value if isinstance(destination, ast.Constant) else name
    return Argument(name, str(attribute).lstrip("-").replace("-", "_").partition("/")[0], default, call.lineno)


def fields_of(definition: ast.ClassDef) -> Iterator[tuple[str, int]]:
    """``(name, line)`` of class fields with a value."""
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.lineno
        elif isinstance(statement, ast.Assign):
            yield from ((target.id, statement.lineno) for target in statement.targets if isinstance(target, ast.Name))


def field_defaults(definition: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """``(name, value)`` of class fields, with `field(default=...)` unwrapped."""
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            default = _field_default(statement.value)
            if default is not None:
                yield statement.target.id, default
        elif isinstance(statement, ast.Assign):
            yield from ((target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name))


def _switch(keywords: dict[str, ast.expr]) -> ast.expr | None:
    """`action="store_true"` defaults to False."""
    action = keywords.get("action")
    if isinstance(action, ast.Constant) and action.value in {"store_true", "store_false"}:
        return ast.Constant(action.value == "store_false", lineno=action.lineno, col_offset=0)
    flag = keywords.get("is_flag")
    return ast.Constant(False, lineno=flag.lineno, col_offset=0) if flag is not None else None


def declares_fields(definition: ast.ClassDef) -> bool:
    """Whether its fields are defaults that an instance may override: a dataclass, a config."""
    sources = [*definition.decorator_list, *definition.bases]
    for source in sources:
        for node in ast.walk(source):
            word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if re.search(
                r"dataclass|Config$|Args$|Arguments$|BaseModel|BaseSettings|NamedTuple|define|attrs|Tap$", word
            ):
                return True
    return False


def _field_default(value: ast.expr) -> ast.expr | None:
    """The default in `field(default=...)` or `Field(1e-4, ...)`."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, (ast.Name, ast.Attribute))):
        return value
    name = value.func.id if isinstance(value.func, ast.Name) else value.func.attr
    if name.lower() not in {"field", "ib", "attrib"}:
        return value
    for keyword in value.keywords:
        if keyword.arg == "default":
            return keyword.value
        if keyword.arg in {"default_factory", "factory"} and isinstance(keyword.value, ast.Lambda):
            return keyword.value.body
    return value.args[0] if value.args else None
