"""Duplicate rows, by 64-bit hashes instead of texts."""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stayfinite.inspection.data.places import FIRST, Tally

PART = 1_000_000  # keys compared at a time; larger sets are split into parts
SHORT = 24
"""Bytes of letters and digits. Shorter rows repeat without being duplicates: yes, no, thank you."""
_PASSED_OVER = "".join(c for c in map(chr, range(128)) if not c.isalnum()).encode()


def bare(text: str) -> bytes:
    """Strip case, spaces, ASCII punctuation and Unicode form from a text."""
    if text.isascii():
        return text.lower().encode().translate(None, _PASSED_OVER)
    folded = unicodedata.normalize("NFKC", text).casefold()
    return folded.encode("utf-8", "surrogatepass").translate(None, _PASSED_OVER)


class Keys:
    """A 64-bit key and the row number for each row of a split: 12 bytes per row.

    Keys are Python hashes: fast, and stable within a process.
    """

    def __init__(self) -> None:
        self._keys = array("q")
        self._rows = array("I")

    def extend(self, rows: Iterable[int], raws: Iterable[bytes]) -> None:
        """Add rows by their bytes."""
        self._keys.extend(map(hash, raws))
        self._rows.extend(rows)

    def __len__(self) -> int:
        return len(self._keys)

    def part(self, number: int, parts: int) -> Iterator[tuple[int, int]]:
        """Keys and rows of one part; equal keys are in the same part."""
        pairs = zip(self._keys, self._rows, strict=True)
        return pairs if parts == 1 else ((key, row) for key, row in pairs if key % parts == number)


@dataclass(slots=True)
class Twins:
    """Rows that duplicate an earlier one."""

    copies: Tally = field(default_factory=Tally)
    originals: list[int] = field(default_factory=list)
    """The earlier row of each of the first duplicates."""
    twinned: int = 0
    """Rows with a duplicate before or after them."""

    def add(self, row: int, earlier: int) -> None:
        """Count a duplicate; the first ones are kept, in order of their rows."""
        self.copies.count += 1
        rows = self.copies.rows
        if len(rows) < FIRST or row < rows[-1]:
            pairs = sorted([*zip(rows, self.originals, strict=True), (row, earlier)])[:FIRST]
            self.copies.rows, self.originals = [one for one, _ in pairs], [other for _, other in pairs]


def twins_in(keys: Keys) -> Twins:
    """Duplicates within one split."""
    found, parts = Twins(), 1 + len(keys) // PART
    for number in range(parts):
        seen: dict[int, int] = {}
        copied: set[int] = set()
        for key, row in keys.part(number, parts):
            earlier = seen.setdefault(key, row)
            if earlier != row:
                copied.add(key)
                found.add(row, earlier)
        found.twinned += len(copied)
    found.twinned += found.copies.count
    return found


def shared_between(train: Keys, held: Keys) -> Twins:
    """Rows of the held-out split whose key is also in the training split."""
    found, parts = Twins(), 1 + len(train) // PART
    for number in range(parts):
        known: dict[int, int] = {}
        for key, row in train.part(number, parts):
            known.setdefault(key, row)
        for key, row in held.part(number, parts):
            if key in known:
                found.add(row, known[key])
    return found
