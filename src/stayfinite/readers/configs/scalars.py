"""Parse an unquoted scalar: `true` is True, `5e-5` a number, `torch.half` a dtype, `fp16` a string."""

from __future__ import annotations

import math
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex

_WORDS: dict[str, Any] = {
    "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None, "null": None,
    "~": None, "nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf, ".nan": math.nan,
    ".inf": math.inf, "-.inf": -math.inf, "infinity": math.inf, "-infinity": -math.inf,
}  # fmt: skip
_INTEGER = lazy_regex(r"[+-]?\d(?:_?\d)*")
_FLOAT = lazy_regex(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?")
_THOUSANDS = lazy_regex(r"[+-]?\d{1,3}(?:,\d{3})+")
_HEX = lazy_regex(r"0[xX][0-9a-fA-F]{1,64}")
_DTYPE = lazy_regex(
    r"(?:torch|jnp|np|numpy|tf)\.((?:b?float|u?int|complex)\d*|half|double|long|short|bool)(?:_e\dm\d\w*)?"
)
_ENUM = lazy_regex(r"(?:\w+\.)*[A-Z]\w*(?:Type|Strategy|Names|Option|Kind|Mode|Backend)\.[A-Z][A-Z0-9_]*")
_DTYPE_NAMES = {
    "half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32", "short": "int16",
}  # fmt: skip

_MOST_DIGITS = 300


class NotPlain(Exception):
    """The text is only a string."""


def scalar(text: str) -> Any:
    """A number, a bool, None, a dtype as `float16`, `SchedulerType.LINEAR` as `linear`, or the text itself.

    The text has no quotes and no comment.
    """
    try:
        return strict_scalar(text)
    except NotPlain:
        return text


def strict_scalar(text: str) -> Any:
    """Like ``scalar``, but raises NotPlain for a plain string."""
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


def number(text: str) -> int | float | None:
    """The text as a number, else None."""
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
    """Normalize a dtype: `torch.half` and `torch.float16` are `float16`; None if it is not a dtype."""
    match = _DTYPE.fullmatch(text)
    if match is None:
        return None
    name = text.rpartition(".")[2]
    return _DTYPE_NAMES.get(name, name)
