"""Escape text for a terminal, so that it cannot move the cursor, change colors or reverse the reading direction."""

from collections.abc import Callable, Mapping
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex

_UNPRINTABLE = lazy_regex(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters except tab and newline
    "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"  # direction marks
    "\ud800-\udfff]"  # lone surrogates, which cannot be encoded
)


def printable(text: str) -> str:
    """The text with unsafe characters shown as their codes."""
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def in_one_line(text: str) -> str:
    """The text with a replacement character for each that is not printable, newlines too."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def printable_parts(part: Any, escape: Callable[[str], str] = printable) -> Any:
    """Escape every text in nested data."""
    if isinstance(part, str):
        return escape(part)
    if isinstance(part, Mapping):
        return {printable_parts(name, escape): printable_parts(value, escape) for name, value in part.items()}
    return [printable_parts(each, escape) for each in part] if isinstance(part, list) else part
