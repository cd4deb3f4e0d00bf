"""Tokenized rows: lengths, unknown tokens, truncation, what is left to learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfinite.inspection.data.lengths import Lengths
from stayfinite.inspection.data.measures import Encoded
from stayfinite.inspection.data.places import Tally
from stayfinite.inspection.data.tokenizers import Tokenizer

MOST_ROWS = 200_000  # rows to tokenize; larger splits are sampled at a fixed interval


@dataclass(slots=True)
class Tokens:
    """Token statistics of a split."""

    tokenizer: Tokenizer
    limit: int | None
    joined: bool
    """Source and target form one text, as in a chat."""
    source: Lengths
    target: Lengths
    whole: Lengths
    every: int = 1
    """Interval between tokenized rows."""
    rows: int = 0
    cut: Tally = field(default_factory=Tally)
    masked: Tally = field(default_factory=Tally)
    """Rows whose prompt alone fills the limit."""
    tokens: int = 0
    unknown: int = 0
    with_unknown: Tally = field(default_factory=Tally)
    outside: set[int] = field(default_factory=set)
    outside_rows: Tally = field(default_factory=Tally)

    @classmethod
    def begin(cls, tokenizer: Tokenizer, limit: int | None, *, joined: bool, every: int) -> Tokens:
        unit = tokenizer.measure.unit
        sides = None if joined else limit
        return cls(
            tokenizer=tokenizer,
            limit=limit,
            joined=joined,
            source=Lengths(unit, sides),
            target=Lengths(unit, sides),
            whole=Lengths(unit, limit),
            every=every,
        )

    def take(self, first: int, source: Sequence[str], target: Sequence[str] | None) -> None:
        """Tokenize rows; ``first`` is the number of the first one."""
        begin = -first % self.every
        rows = range(first + begin, first + len(source), self.every)
        if not rows:
            return
        encode = self.tokenizer.measure.encoded
        one = encode(source[begin :: self.every])
        two = encode(target[begin :: self.every]) if target is not None else None
        self.rows += len(rows)
        self.source.take(rows, one.lengths)
        if two is not None:
            self.target.take(rows, two.lengths)
        if two is not None and self.joined:
            # Special tokens of both halves are counted, so subtract those between them.
            whole = [a + b - 1 for a, b in zip(one.lengths, two.lengths, strict=True)]
            self.whole.take(rows, whole)
            self._beyond(self.cut, rows, whole)
            self._beyond(self.masked, rows, one.lengths)
        elif two is not None:
            self._beyond(self.cut, rows, list(map(max, one.lengths, two.lengths)))
        else:
            self._beyond(self.cut, rows, one.lengths)
        for encoded in filter(None, (one, two)):
            self._ids(rows, encoded)

    def _beyond(self, tally: Tally, rows: Sequence[int], lengths: Sequence[int]) -> None:
        if self.limit is None or max(lengths) <= self.limit:
            return
        for row, length in zip(rows, lengths, strict=True):
            if length > self.limit:
                tally.add(row)

    def _ids(self, rows: Sequence[int], encoded: Encoded) -> None:
        self.tokens += sum(encoded.lengths)
        if any(encoded.unknown):
            for row, unknown in zip(rows, encoded.unknown, strict=True):
                if unknown:
                    self.unknown += unknown
                    self.with_unknown.add(row)
        size = self.tokenizer.rows
        if size is not None and max(encoded.largest, default=-1) >= size:
            for row, largest in zip(rows, encoded.largest, strict=True):
                if largest >= size:
                    self.outside.add(largest)
                    self.outside_rows.add(row)
