"""Values for the page's JSON: bounded texts, finite short numbers."""

import math
from collections.abc import Mapping
from typing import Any

LONGEST = 2_000


def text(value: object, longest: int = LONGEST) -> str:
    """As text, truncated; lone surrogates are replaced."""
    words = str(value).encode("utf-8", "replace").decode("utf-8")
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def texts(record: Mapping[str, Any], **longest: int) -> dict[str, str]:
    """Values of a record as texts of at most so many characters; empty for a missing one."""
    return {name: text("" if record.get(name) is None else record[name], most) for name, most in longest.items()}


def short(value: float) -> float | int:
    """A finite number rounded to six digits."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def shown(value: Any) -> str:
    """Format a setting."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, Mapping):
        return text(", ".join(f"{name} {shown(part)}" for name, part in value.items()))
    if isinstance(value, list | tuple):
        return text(", ".join(shown(part) for part in value))
    return text(value)


def whole(step: float) -> float | int:
    """A step as an int where possible."""
    return int(step) if math.isfinite(step) and float(step).is_integer() else short(step)


def without_repeats(said: str, cause: object) -> str:
    """An autopsy's verdict without the cause and the fix, which are shown next to it."""
    if not said.startswith(f"{cause} ("):
        return said
    return said.partition("): ")[2].partition(" Fix: ")[0]


def records(value: Any, most: int) -> list[dict[str, Any]]:
    """The objects in a list; empty if it is not a list."""
    return [each for each in value if isinstance(each, dict)][:most] if isinstance(value, list) else []


def objects(value: Any) -> dict[str, Any]:
    """The value if it is an object, else {}."""
    return value if isinstance(value, dict) else {}
