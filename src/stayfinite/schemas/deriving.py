"""Derive JSON Schema (draft 2020-12) from dataclasses and typed dicts: types, and docstrings under fields."""

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

_PLAIN: dict[Any, dict[str, Any]] = {
    Any: {}, object: {}, str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"},
    bool: {"type": "boolean"}, type(None): {"type": "null"}, None: {"type": "null"}, Path: {"type": "string"},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the plain data of a class differs from its fields."""

    keys: tuple[str, ...] = ()
    """All keys in order; empty for the class's fields. A key may be a property."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Keys with another name than their attribute: key to attribute."""
    typed: Mapping[str, Any] = field(default_factory=dict)
    """Keys whose value has another type than their attribute."""
    optional: tuple[str, ...] = ()
    """Keys that may be omitted."""


class Deriver:
    """Creates schemas; nested classes go to ``definitions``."""

    def __init__(self, shapes: Mapping[type, Shape]) -> None:
        self._shapes = shapes
        self.definitions: dict[str, Any] = {}

    def schema(self, hint: Any) -> dict[str, Any]:
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Literal:
            return {"enum": list(inner)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.schema(each) for each in inner]}
        if origin is tuple and inner[-1:] != (...,):
            parts = [self.schema(each) for each in inner]
            return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.schema(inner[1])}
        if isinstance(origin, type) and issubclass(origin, (Sequence, AbstractSet)):
            return {"type": "array", "items": self.schema(inner[0])}
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return {"enum": [str(each) for each in hint]}
        if is_typeddict(hint) or (isinstance(hint, type) and is_dataclass(hint)):
            return self._reference(hint)
        raise TypeError(f"no JSON Schema for {hint!r}")

    def fields_of(self, of: type) -> dict[str, Any]:
        """Schema of a class itself: its keys with types and descriptions."""
        hints, said = _hints(of), _docstrings(of)
        shape = self._shapes.get(of, Shape())
        keys = shape.keys or tuple(each.name for each in fields(of)) if is_dataclass(of) else tuple(hints)
        properties: dict[str, Any] = {}
        for key in keys:
            attribute = shape.named.get(key, key)
            found = self.schema(shape.typed[key] if key in shape.typed else _unwrapped(hints[attribute]))
            properties[key] = found | ({"description": said[attribute]} if attribute in said else {})
        optional = {name for name, hint in hints.items() if get_origin(hint) is typing.NotRequired}
        optional |= set(shape.optional)
        record: dict[str, Any] = {"type": "object", "properties": properties}
        record["required"] = [key for key in properties if key not in optional]
        about = inspect.getdoc(of) or ""
        return {"description": " ".join(about.split("\n\n")[0].split())} | record if about else record

    def _reference(self, of: type) -> dict[str, Any]:
        name = of.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # for recursive classes
            self.definitions[name] = self.fields_of(of)
        return {"$ref": f"#/$defs/{name}"}


def _hints(of: type) -> dict[str, Any]:
    """Types of fields and properties."""
    found = get_type_hints(of, include_extras=True)
    for name, member in vars(of).items():
        if isinstance(member, property) and member.fget is not None:
            found[name] = get_type_hints(member.fget)["return"]
    return found


def _unwrapped(hint: Any) -> Any:
    """A type without `NotRequired[...]`."""
    return get_args(hint)[0] if get_origin(hint) in (typing.NotRequired, typing.Required) else hint


def _docstrings(of: type) -> dict[str, str]:
    """Docstrings under fields, and first lines of properties; empty without source."""
    said = {
        name: (inspect.getdoc(member) or "").partition("\n")[0]
        for name, member in vars(of).items()
        if isinstance(member, property)
    }
    try:
        body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(of))).body[0]).body
    except (OSError, TypeError, SyntaxError):
        return said
    for before, after in pairwise(body):
        match before, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                said[name] = " ".join(words.split())
    return said
