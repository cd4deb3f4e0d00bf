"""Statistics of columns in bounded memory: lengths, numbers, token ids, tokenized text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stayfinite.inspection.data.places import Tally
from stayfinite.inspection.data.tokenizers import Encoded, Tokenizer
from stayfinite.inspection.data.values import as_number


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
        self.over.add_beyond(self.limit, rows, lengths)

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


@dataclass(slots=True)
class Numbers:
    """Statistics of one column."""

    count: int = 0
    smallest: float = math.inf
    largest: float = -math.inf
    not_finite: Tally = field(default_factory=Tally)
    """Explicit NaN or infinity."""
    gaps: Tally = field(default_factory=Tally)
    """Empty cells and placeholders."""
    words: Tally = field(default_factory=Tally)
    """Non-numeric text."""

    def take(self, first: int, values: Sequence[Any]) -> None:
        """Add values; ``first`` is the number of the first row."""
        try:
            numbers = list(map(float, values))
            if all(map(math.isfinite, numbers)):
                self._admit(numbers)
                return
        except (TypeError, ValueError, OverflowError):
            pass
        good = []
        for row, value in enumerate(values, first):
            number = as_number(value)
            if number is None:
                self.words.add(row)
            elif math.isfinite(number):
                good.append(number)
            elif math.isinf(number) or isinstance(value, float) or str(value).strip().lower().lstrip("+-") == "nan":
                self.not_finite.add(row)
            else:
                self.gaps.add(row)
        self._admit(good)

    def _admit(self, numbers: Sequence[float]) -> None:
        if numbers:
            self.count += len(numbers)
            self.smallest = min(self.smallest, *numbers)
            self.largest = max(self.largest, *numbers)

    @property
    def constant(self) -> bool:
        """Whether many rows share one value."""
        return self.count >= 20 and self.smallest == self.largest and not self.words.count


IGNORED = -100
MOST_IDS = 8  # distinct ids listed


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
                if len(self.outside) < MOST_IDS:
                    self.outside |= wrong
        if learnt:
            left = len(ids) - ids.count(IGNORED)
            self.labels += len(ids)
            self.supervised += left
            if not left:
                self.masked.add(row)
        else:
            self.lengths.take([row], [len(ids)])
            self.cut.add_beyond(self.lengths.limit, [row], [len(ids)])


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
            self.cut.add_beyond(self.limit, rows, whole)
            self.masked.add_beyond(self.limit, rows, one.lengths)
        else:
            longest = one.lengths if two is None else list(map(max, one.lengths, two.lengths))
            self.cut.add_beyond(self.limit, rows, longest)
        for encoded in filter(None, (one, two)):
            self._ids(rows, encoded)

    def _ids(self, rows: Sequence[int], encoded: Encoded) -> None:
        self.tokens += sum(encoded.lengths)
        if any(encoded.unknown):
            for row, unknown in zip(rows, encoded.unknown, strict=True):
                if unknown:
                    self.unknown += unknown
                    self.with_unknown.add(row)
        size = self.tokenizer.rows
        if size is not None and encoded.largest:
            self.outside |= {largest for largest in encoded.largest if largest >= size}
            self.outside_rows.add_beyond(size - 1, rows, encoded.largest)
