"""Row lengths as an exact histogram of bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfinite.inspection.data.places import Tally


@dataclass(slots=True)
class Lengths:
    """Lengths of one column or of whole rows, in one unit."""

    unit: str
    limit: int | None = None
    counts: Counter[int] = field(default_factory=Counter)
    over: Tally = field(default_factory=Tally)
    """Rows beyond the limit."""
    longest: int = 0
    longest_row: int = 0

    def take(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        if not lengths:
            return
        self.counts.update(lengths)
        top = max(lengths)
        if top > self.longest:
            self.longest, self.longest_row = top, rows[lengths.index(top)]
        if self.limit is not None and top > self.limit:
            for row, length in zip(rows, lengths, strict=True):
                if length > self.limit:
                    self.over.add(row)

    @property
    def rows(self) -> int:
        return self.counts.total()

    def at(self, share: float) -> int:
        """The length that this share of the rows does not exceed."""
        wanted, passed = share * self.rows, 0
        for length in sorted(self.counts):
            passed += self.counts[length]
            if passed >= wanted:
                return length
        return 0

    @property
    def cut(self) -> float:
        """Share of rows beyond the limit."""
        return self.over.count / self.rows if self.rows else 0.0
