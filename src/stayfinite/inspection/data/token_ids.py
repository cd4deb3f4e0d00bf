"""Tokenized data: ids beyond the embedding, fully masked labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stayfinite.inspection.data.lengths import Lengths
from stayfinite.inspection.data.places import Tally

IGNORED = -100
MOST = 8  # distinct ids listed


@dataclass(slots=True)
class TokenIds:
    """Statistics of token id columns."""

    size: int | None
    """Rows of the embedding; None if unknown."""
    lengths: Lengths
    largest: int = -1
    outside: set[int] = field(default_factory=set)
    outside_rows: Tally = field(default_factory=Tally)
    masked: Tally = field(default_factory=Tally)
    cut: Tally = field(default_factory=Tally)
    empty: Tally = field(default_factory=Tally)
    supervised: int = 0
    labels: int = 0

    def take(self, first: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add rows; ``first`` is the number of the first one."""
        for name, values in columns.items():
            learnt = "label" in name or "target" in name
            for row, ids in enumerate(values, first):
                if not isinstance(ids, list) or not ids:
                    self.empty.add(row)
                elif not all(isinstance(each, int) for each in ids):
                    self.outside_rows.add(row)
                else:
                    self._row(row, ids, learnt=learnt)

    def _row(self, row: int, ids: list[int], *, learnt: bool) -> None:
        low, high = min(ids), max(ids)
        self.largest = max(self.largest, high)
        if low < 0 or (self.size is not None and high >= self.size):
            wrong = {
                each
                for each in set(ids)
                if (each < 0 and not (learnt and each == IGNORED)) or (self.size is not None and each >= self.size)
            }
            if wrong:
                self.outside_rows.add(row)
                if len(self.outside) < MOST:
                    self.outside |= wrong
        if learnt:
            left = len(ids) - ids.count(IGNORED)
            self.labels += len(ids)
            self.supervised += left
            if not left:
                self.masked.add(row)
        else:
            self.lengths.take([row], [len(ids)])
            if self.lengths.limit is not None and len(ids) > self.lengths.limit:
                self.cut.add(row)
