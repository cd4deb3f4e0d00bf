"""The most recent line shapes, newest first."""

from __future__ import annotations

import re

from stayfinite.readers.logs.reading import Reading
from stayfinite.readers.logs.shapes import Shape, message_shape, shape_of

MOST_SHAPES = 12
MOST_KEYS = 2_000

_NUMBERS = re.compile(r"(?<![A-Za-z_\d])\d[\w.+-]*|(?i:\bnan\b|\binf\b)")
"""Numbers that may vary in a shape besides its fields. The 17 of `metric_17` is part of a name and stays fixed."""


class ShapeBook:
    """Finds the shape of a line and learns new ones."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._met: set[str] = set()

    def find(self, line: str) -> tuple[Shape, re.Match[str]] | None:
        """Return the shape of a line and the match with its numbers."""
        for place, shape in enumerate(self._shapes):
            match = shape.pattern.fullmatch(line)
            if match is not None:
                if place > 1:
                    self._shapes.insert(0, self._shapes.pop(place))
                return shape, match
        return None

    def learn(
        self, line: str, reading: Reading, rank: tuple[int, int] | None, by_process: bool
    ) -> tuple[Shape, re.Match[str]] | None:
        """Learn the shape of a measured line when its second example arrives."""
        if reading.is_summary or not reading.has_shape or not reading.fields:
            return None
        key = _key(line, reading)
        if key not in self._met:
            if len(self._met) >= MOST_KEYS:
                self._met.clear()
            self._met.add(key)
            return None
        shape = shape_of(line, reading, rank, by_process)
        match = shape.pattern.fullmatch(line) if shape else None
        if shape is None or match is None:
            return None
        self._keep(shape)
        return shape, match

    def learn_message(self, line: str, start: int, rank: tuple[int, int] | None, by_process: bool) -> None:
        """Learn the shape of a repeated message."""
        self._keep(message_shape(line, start, rank, by_process))

    def forget_messages(self) -> None:
        """Forget message shapes, because such lines may be something else from here on."""
        self._shapes = [shape for shape in self._shapes if shape.reading.kind]

    def _keep(self, shape: Shape) -> None:
        self._shapes.insert(0, shape)
        del self._shapes[MOST_SHAPES:]


def _key(line: str, reading: Reading) -> str:
    """A line without its numbers, equal for all lines of one shape."""
    parts, place = [], 0
    for start, end in sorted((start, end) for _, start, end in reading.fields):
        if start >= place:
            parts.append(line[place:start])
            place = end
    parts.append(line[place:])
    return "#".join(_NUMBERS.sub("#", part) for part in parts)
