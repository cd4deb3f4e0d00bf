"""Map row numbers of a split to locations: `pairs.csv:17`."""

import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
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

    def add_beyond(self, limit: int | None, rows: Sequence[int], sizes: Sequence[int]) -> None:
        """Add the rows whose size exceeds the limit, if there is one."""
        if limit is not None and max(sizes) > limit:
            for row, size in zip(rows, sizes, strict=True):
                if size > limit:
                    self.add(row)


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
