"""A stream position that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Spot(NamedTuple):
    """The next batch of a stripe. On resume its window is read again from the start."""

    epoch: int = 0
    window: int = 0
    """Index of the window in the epoch."""
    file: int = 0
    """Start of the window: index of the file in the epoch's order, and of the row in it."""
    row: int = 0
    pool: int = 0
    """Index of the pool in the window."""
    batch: int = 0
    """Batches of the pool already given."""

    @property
    def beginning(self) -> Spot:
        return self._replace(pool=0, batch=0)

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Spot:
        """The position saved as these numbers. Raises ValueError if invalid."""
        if len(numbers) != len(cls._fields) or any(int(number) < 0 for number in numbers):
            raise ValueError(f"{numbers!r} is not a stream position")
        return cls(*map(int, numbers))


def lowest(spots: Sequence[Spot]) -> Spot:
    """Start of the earliest window of these stripes; all rows before it were given."""
    return min(spot.beginning for spot in spots)
