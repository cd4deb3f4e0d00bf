"""Rows that are copies of each other: by a hash of 64 bits a row, never by keeping the texts."""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stayfinite.inspection.data.places import FIRST, Tally

PART = 1_000_000
"""Keys that are compared at a time; more are compared in so many parts."""
SHORT = 24
"""Letters and digits, in bytes. Shorter rows coincide without being copies: yes, no, thank you."""
_PASSED_OVER = "".join(c for c in map(chr, range(128)) if not c.isalnum()).encode()


def bare(text: str) -> bytes:
    """What is left of a text when form, case, spaces and ASCII punctuation are taken away."""
    if text.isascii():
        return text.lower().encode().translate(None, _PASSED_OVER)
    folded = unicodedata.normalize("NFKC", text).casefold()
    return folded.encode("utf-8", "surrogatepass").translate(None, _PASSED_OVER)


class Keys:
    """A key of 64 bits for each row of a split, with the row's number: 12 bytes a row.

    Keys are Python's own hashes: quick, and the same for the same bytes as long as the process lives.
    """

    def __init__(self) -> None:
        self._keys = array("q")
        self._rows = array("I")

    def extend(self, rows: Iterable[int], raws: Iterable[bytes]) -> None:
        """Remember rows by their bytes."""
        self._keys.extend(map(hash, raws))
        self._rows.extend(rows)

    def __len__(self) -> int:
        return len(self._keys)

    def part(self, number: int, parts: int) -> Iterator[tuple[int, int]]:
        """Keys and rows of one part of all keys; the same key is always in the same part."""
        pairs = zip(self._keys, self._rows, strict=True)
        return pairs if parts == 1 else ((key, row) for key, row in pairs if key % parts == number)


@dataclass(slots=True)
class Twins:
    """Rows that are copies of an earlier one."""

    copies: Tally = field(default_factory=Tally)
    originals: list[int] = field(default_factory=list)
    """The earlier row of each of the first copies."""
    twinned: int = 0
    """Rows that have a copy, earlier or later."""


def twins_in(keys: Keys) -> Twins:
    """Copies within one split."""
    found, pairs, parts = Twins(), list[tuple[int, int]](), 1 + len(keys) // PART
    for number in range(parts):
        seen: dict[int, int] = {}
        copied: set[int] = set()
        for key, row in keys.part(number, parts):
            earlier = seen.setdefault(key, row)
            if earlier != row:
                copied.add(key)
                found.copies.count += 1
                if len(pairs) < FIRST or row < pairs[-1][0]:
                    pairs = sorted([*pairs, (row, earlier)])[:FIRST]
        found.twinned += len(copied)
    found.twinned += found.copies.count
    found.copies.rows, found.originals = [row for row, _ in pairs], [earlier for _, earlier in pairs]
    return found


def shared_between(train: Keys, held: Keys) -> Twins:
    """Rows of the held-out split whose key is in the training split too."""
    found, pairs, parts = Twins(), list[tuple[int, int]](), 1 + len(train) // PART
    for number in range(parts):
        known: dict[int, int] = {}
        for key, row in train.part(number, parts):
            known.setdefault(key, row)
        for key, row in held.part(number, parts):
            if key in known:
                found.copies.count += 1
                if len(pairs) < FIRST or row < pairs[-1][0]:
                    pairs = sorted([*pairs, (row, known[key])])[:FIRST]
    found.copies.rows, found.originals = [row for row, _ in pairs], [earlier for _, earlier in pairs]
    return found
