"""A place in a stream, as a few numbers that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Spot(NamedTuple):
    """Where a stripe stands: the next batch that it gives. Its window is read again from where that begins."""

    epoch: int = 0
    window: int = 0
    """Number of the window within the epoch."""
    file: int = 0
    """Where the window begins: the file's number in the order of the epoch, and the row's in the file."""
    row: int = 0
    pool: int = 0
    """Number of the pool within the window."""
    batch: int = 0
    """Batches of the pool that were given."""

    @property
    def beginning(self) -> Spot:
        """Where its window begins."""
        return self._replace(pool=0, batch=0)

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Spot:
        """The spot that these numbers, from a checkpoint, stand for.

        Raises:
            ValueError: they are none.
        """
        if len(numbers) != len(cls._fields) or any(int(number) < 0 for number in numbers):
            raise ValueError(f"{numbers!r} is not a stream position")
        return cls(*map(int, numbers))


def lowest(spots: Sequence[Spot]) -> Spot:
    """The beginning of the earliest window that any of these stripes stands in; before it, every row was given."""
    return min(spot.beginning for spot in spots)
