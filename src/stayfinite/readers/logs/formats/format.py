"""The interface of a log format."""

from __future__ import annotations

from typing import ClassVar

from stayfinite.readers.logs.reading import Reading


class Format:
    """A log format. Each log gets its own instance, which may keep state."""

    marks: ClassVar[tuple[str, ...]]
    """Lowercase substrings; a line without any of them is rejected without parsing."""
    is_last: ClassVar[bool] = False
    """A fallback, always tried last."""
    waits: ClassVar[bool] = False
    """Whether ``is_open`` is used."""
    is_open: bool = False
    """Set while the format expects more lines, whatever their look."""

    def read(self, line: str, start: int) -> Reading | None:
        """Parse a line, or return None if it is not in this format. ``start`` is after timestamp and rank."""
        raise NotImplementedError
