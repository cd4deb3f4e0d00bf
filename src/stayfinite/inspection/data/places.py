"""Map row numbers of a split to locations: `pairs.csv:17`."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfinite.readers.data.chunk import Chunk

FIRST = 5  # rows listed before "and n more"


@dataclass(slots=True)
class Tally:
    """A count with the first rows."""

    count: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, row: int) -> None:
        self.count += 1
        if len(self.rows) < FIRST:
            self.rows.append(row)


class Places:
    """Location of every row of a split: four bytes per row."""

    def __init__(self) -> None:
        self._lines = array("I")
        self._starts: list[int] = []
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._lines)

    def take(self, chunk: Chunk) -> None:
        if not self._names or self._names[-1] != chunk.path.name:
            self._names.append(chunk.path.name)
            self._starts.append(len(self._lines))
        self._lines.extend(chunk.lines)

    def of(self, row: int) -> str:
        return f"{self._names[bisect_right(self._starts, row) - 1]}:{self._lines[row]}"

    def named(self, rows: Sequence[int], count: int) -> str:
        """List the first locations and count the rest: `pairs.csv:3, 17 and 40 more`."""
        shown, file = [], ""
        for row in rows[:FIRST]:
            name, _, line = self.of(row).rpartition(":")
            shown.append(line if name == file else f"{name}:{line}")
            file = name
        more = count - len(shown)
        return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")

    def tallied(self, tally: Tally) -> str:
        return self.named(tally.rows, tally.count)
