"""The interface of a log format, and what most of them do: recognize a head, read its groups and the pairs after it."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.pairs import Pair, separated_pairs
from stayfinite.readers.logs.reading import Reading, fields_of


class Head:
    """How lines of a format begin. Named groups become fields, but not `mode`: anything but `train` evaluates.

    Arguments:
        text: the regular expression.
        at_start: whether it is found only at the start of the line's own text.
        pairs: whether the names and numbers after it are measurements, too.
        needs: fields of which a line of this kind has at least one.
        point_needs: fields of which a line has one if it is a point.
        form: what else the reading is: `skipped`, `is_message` and so on.
    """

    def __init__(
        self,
        text: str,
        flags: int = 0,
        *,
        at_start: bool = False,
        pairs: bool = True,
        evaluates: bool = False,
        needs: tuple[str, ...] = (),
        point_needs: tuple[str, ...] = (),
        **form: Any,
    ) -> None:
        self._pattern, self._at_start, self._pairs = lazy_regex(text, flags), at_start, pairs
        self._evaluates, self._needs, self._point_needs, self._form = evaluates, needs, point_needs, form

    def find(self, line: str, start: int) -> re.Match[str] | None:
        """The head of a line."""
        return self._pattern.match(line, start) if self._at_start else self._pattern.search(line, start)

    def read(self, of: Format, match: re.Match[str], line: str) -> Reading | None:
        """Read its groups, and what follows."""
        evaluation = self._evaluates or match.groupdict().get("mode") not in (None, "train")
        reading = Reading(of.kind, fields_of(match), **self._form)
        if self._pairs:
            reading.take(of.pairs(line, match.end()), evaluation=evaluation)
        if evaluation or (self._point_needs and not reading.has(*self._point_needs)):
            reading.is_point = False
        return None if self._needs and not reading.has(*self._needs) else reading


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
    kind: ClassVar[str] = ""
    """The name of the format, as the series tells it."""
    heads: ClassVar[tuple[Head, ...]] = ()

    def read(self, line: str, start: int) -> Reading | None:
        """Parse a line, or return None if it is not in this format. ``start`` is after timestamp and rank."""
        for head in self.heads:
            match = head.find(line, start)
            if match is not None:
                return head.read(self, match, line)
        return None

    def pairs(self, line: str, place: int) -> list[Pair]:
        """The names and numbers from a place on."""
        return separated_pairs(line, place)
