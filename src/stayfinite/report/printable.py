"""Text from files on its way to a terminal: nothing in it may move the cursor, change colors or turn what is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but tabs and line ends
    "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"  # what turns the direction of reading
    "\ud800-\udfff]"  # half a pair, which no terminal's encoding can hold
)


def printable(text: str) -> str:
    """The text with every character that would act on a terminal shown as its code."""
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def printable_parts(part: Any) -> Any:
    """The same data with every text fit for a terminal: names, values and rows may hold anything."""
    if isinstance(part, str):
        return printable(part)
    if isinstance(part, Mapping):
        return {printable_parts(name): printable_parts(value) for name, value in part.items()}
    return [printable_parts(each) for each in part] if isinstance(part, list) else part
