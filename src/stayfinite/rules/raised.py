"""The error of a traceback: its own line in the log, and the last frame of the user's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message

SOURCE = 100
"""Characters quoted of a line of code."""

_FRAME = lazy_regex(r'^\s*File "([^"]+)", line (\d+)')
_OF_A_LIBRARY = lazy_regex(
    r"site-packages|dist-packages|[\\/]lib[\\/]python\d|^<|[\\/]bin[\\/](?:torchrun|accelerate)$"
)
_MARKS = lazy_regex(r"^[\s^~]*$")


@dataclass(frozen=True, slots=True)
class Raised:
    """The error of a traceback."""

    text: str
    """Its last line."""
    where: str
    """Where the log has that line."""
    frame: str
    """The last frame of the user's code with its source: `train.py:41: loss = total / count`; or empty."""


def raised_in(messages: Sequence[Message]) -> Mapping[str, Raised]:
    """The error of each traceback, by the place of its first line."""
    found: dict[str, Raised] = {}
    for each in messages:
        if "\n" in each.text and "Traceback (" in each.text:
            found.setdefault(each.where, _raised(each, messages))
    return found


def _raised(traceback: Message, messages: Sequence[Message]) -> Raised:
    lines = traceback.text.splitlines()
    error = lines[-1].strip()
    behind = (
        one
        for one in messages
        if one.source == traceback.source and one.line > traceback.line and one.text.strip() == error
    )
    own = next(behind, None)
    return Raised(error, traceback.where if own is None else own.where, _own_frame(lines))


def _own_frame(lines: Sequence[str]) -> str:
    frame = ""
    for index, line in enumerate(lines):
        if (found := _FRAME.match(line)) is not None and _OF_A_LIBRARY.search(found[1]) is None:
            source = lines[index + 1].strip() if index + 1 < len(lines) - 1 else ""
            shown = source and _FRAME.match(source) is None and _MARKS.match(source) is None
            frame = f"{found[1]}:{found[2]}" + (f": {source[:SOURCE]}" if shown else "")
    return frame
