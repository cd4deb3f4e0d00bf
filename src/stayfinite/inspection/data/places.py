"""Which row is which: from its number in the split to `pairs.csv:17`."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfinite.readers.data.chunk import Chunk

FIRST = 5
"""Rows that are named before "and so many more"."""


@dataclass(slots=True)
class Tally:
    """How often something was met, and in which rows first."""

    count: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, row: int) -> None:
        """Count a row."""
        self.count += 1
        if len(self.rows) < FIRST:
            self.rows.append(row)


class Places:
    """Where every row of a split stands: four bytes a row."""

    def __init__(self) -> None:
        self._lines = array("I")
        self._starts: list[int] = []
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._lines)

    def take(self, chunk: Chunk) -> None:
        """Remember where the rows of a chunk stand."""
        if not self._names or self._names[-1] != chunk.path.name:
            self._names.append(chunk.path.name)
            self._starts.append(len(self._lines))
        self._lines.extend(chunk.lines)

    def of(self, row: int) -> str:
        """The place of one row."""
        return f"{self._names[bisect_right(self._starts, row) - 1]}:{self._lines[row]}"

    def named(self, rows: Sequence[int], count: int) -> str:
        """The places of the first rows, and how many there are beside them: `pairs.csv:3, 17 and 40 more`."""
        told, file = [], ""
        for row in rows[:FIRST]:
            name, _, line = self.of(row).rpartition(":")
            told.append(line if name == file else f"{name}:{line}")
            file = name
        more = count - len(told)
        return ", ".join(told) + (f" and {more:,} more" if more > 0 else "")

    def tallied(self, tally: Tally) -> str:
        """The places of a tally."""
        return self.named(tally.rows, tally.count)
