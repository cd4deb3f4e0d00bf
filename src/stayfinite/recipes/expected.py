"""What the value of a setting should be, in words."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, Literal, get_args, get_origin

NUMBERS: dict[Any, tuple[str, Callable[[str], Any]]] = {int: ("a whole number", int), float: ("a number", float)}


def expected(hint: Any, value: Any) -> str:
    """What a setting of this type expects; empty if the value fits.

    Arguments:
        value: the text after a flag, or what a YAML file has.
    """
    if get_origin(hint) is tuple:
        each = get_args(hint)[0]
        found = (expected(each, one) for one in (value if isinstance(value, list | tuple) else [value]))
        return next(filter(None, found), "")
    kinds = get_args(hint) if NoneType in get_args(hint) else (hint,)
    if value is None or (NoneType in kinds and value == "None"):
        return ""
    (kind,) = (each for each in kinds if each is not NoneType)
    if get_origin(kind) is Literal:
        choices = [str(each) for each in get_args(kind)]
        return "" if str(value) in choices else f"{', '.join(choices[:-1])} or {choices[-1]}"
    if kind is bool:
        return "" if str(value) in ("True", "False") else "True or False"
    if kind in NUMBERS:
        words, read = NUMBERS[kind]
        try:
            read(str(value))
        except ValueError:
            return words
    return "one value" if isinstance(value, list | dict) else ""
