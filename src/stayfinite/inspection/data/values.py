"""Interpret a cell: missing, text or number."""

import math
from typing import Any

NOT_A_VALUE = frozenset({"nan", "NaN", "NAN", "<NA>"})  # missing values written as text
GAPS = frozenset({"", "na", "n/a", "null", "none", "nan", "<na>", "-", "?", "nil"})
"""Placeholders in a numeric column."""


def missing(value: Any) -> bool:
    """Whether there is no value: null, or NaN, even as text."""
    if value is None:
        return True
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, str) and value in NOT_A_VALUE


def as_text(value: Any) -> str:
    """A cell as the tokenizer gets it."""
    if isinstance(value, str):
        return value
    if missing(value):
        return ""
    if isinstance(value, list):
        return " ".join(map(as_text, value))
    return str(value)


def as_number(value: Any) -> float | None:
    """A cell as a number; NaN if missing, None if not a number."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if value is None:
        return math.nan
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return math.nan if value.strip().lower() in GAPS else None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
