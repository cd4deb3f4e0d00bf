"""What a log format is to the reader: something that understands a line, or leaves it alone."""

from __future__ import annotations

from typing import ClassVar

from stayfinite.readers.logs.reading import Reading


class Format:
    """One format. An instance belongs to one log and may remember what it has read of it."""

    marks: ClassVar[tuple[str, ...]]
    """A line without any of these, in small letters, is none of this format: a quick no."""
    is_last: ClassVar[bool] = False
    """It takes what the others leave and is never moved to the front."""
    waits: ClassVar[bool] = False
    """Whether it may be open."""
    is_open: bool = False
    """It waits for certain lines, whatever they look like."""

    def read(self, line: str, start: int) -> Reading | None:
        """What the line says; None where it is none of this format. ``start``: behind timestamp and rank."""
        raise NotImplementedError
