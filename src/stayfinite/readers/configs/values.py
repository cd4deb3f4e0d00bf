"""From the text of a value to the value: `True (default)` is True, `5e-5` a number, `fp16` stays a word."""

from __future__ import annotations

import math
import re
from typing import Any

_WORDS: dict[str, Any] = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
    "none": None,
    "null": None,
    "~": None,
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    ".nan": math.nan,
    ".inf": math.inf,
    "-.inf": -math.inf,
    "infinity": math.inf,
    "-infinity": -math.inf,
}
_INTEGER = re.compile(r"[+-]?\d(?:_?\d)*")
_FLOAT = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,64}")
_REMARK = re.compile(r"[(\[][^()\[\]]*[)\]]$|(?<=\s)#.*$|(?<=\s)//.*$")
_DTYPE = re.compile(
    r"(?:torch|jnp|np|numpy|tf)\.((?:b?float|u?int|complex)\d*|half|double|long|short|bool)(?:_e\dm\d\w*)?"
)
_ENUM = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Type|Strategy|Names|Option|Kind|Mode|Backend)\.[A-Z][A-Z0-9_]*")
_DTYPE_NAMES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "long": "int64",
    "int": "int32",
    "short": "int16",
}


_MOST_DIGITS = 300
_MOST_TEXT = 4_000
"""Longer ones are no value that a person wrote on a line."""


class NotPlain(Exception):
    """The text is a text."""


def scalar(text: str) -> Any:
    """A number, a bool, None, a dtype as `float16`, `SchedulerType.LINEAR` as `linear`, or the text itself.

    The text has no quotes and no remark.
    """
    try:
        return _strict(text)
    except NotPlain:
        return text


def number(text: str) -> int | float | None:
    """The number that the whole text is, else None."""
    if len(text) > _MOST_DIGITS:
        return None
    try:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _THOUSANDS.fullmatch(text):
            return int(text.replace(",", ""))
        if _HEX.fullmatch(text):
            return int(text, 16)
    except (ValueError, OverflowError):
        return None
    return None


def dtype_name(text: str) -> str | None:
    """`torch.half` and `torch.float16` are both `float16`, as config files write it; None for what is no dtype."""
    match = _DTYPE.fullmatch(text)
    if match is None:
        return None
    name = text.rpartition(".")[2]
    return _DTYPE_NAMES.get(name, name)


def value_in_text(text: str) -> Any:
    """The value of a line that people wrote: quotes, brackets and a closing remark are understood.

    >>> value_in_text("True (default)"), value_in_text("[0.9, 0.95]"), value_in_text("'5'"), value_in_text("4x V100")
    (True, [0.9, 0.95], '5', '4x V100')
    """
    text = text.strip()
    if len(text) > _MOST_TEXT:
        return text
    whole = _whole(text)
    if whole is not NotPlain:
        return whole
    without = _REMARK.sub("", text).rstrip(" ,;")
    if without != text:
        whole = _whole(without)
        if whole is not NotPlain:
            return whole
    for head in (text.partition(" (")[0] if text.endswith(")") else text, re.split(r"[,;(]\s", text, maxsplit=1)[0]):
        if head != text:
            try:
                return _strict(head.strip())
            except NotPlain:
                pass
    return text


def _whole(text: str) -> Any:
    if not text:
        return ""
    try:
        return _strict(text)
    except NotPlain:
        pass
    first, last = text[0], text[-1]
    if first in "'\"" and last == first and len(text) > 1 and first not in text[1:-1]:
        return text[1:-1]
    if (first, last) in {("[", "]"), ("{", "}"), ("(", ")")} and " for " not in text:
        from stayfinite.readers.configs.literals import parse_literal
        from stayfinite.readers.configs.tree import plain_data

        parsed = parse_literal(text)
        if parsed is not None and parsed.whole and not text[parsed.end :].strip():
            return plain_data(parsed.node)
    if "," in text and len(text) < 200:
        parts = [number(part.strip()) for part in text.split(",")]
        if len(parts) > 1 and all(part is not None for part in parts):
            return parts
    return NotPlain


def _strict(text: str) -> Any:
    lower = text.lower()
    if lower in _WORDS:
        return _WORDS[lower]
    found = number(text)
    if found is not None:
        return found
    dtype = dtype_name(text)
    if dtype is not None:
        return dtype
    if _ENUM.fullmatch(text):
        return text.rpartition(".")[2].lower()
    raise NotPlain
