"""Turn rows into batches, window by window, from any position."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from stayfinite.recipes.streaming.rows import Rows
from stayfinite.recipes.streaming.windows import USUAL, Bounds, Stripe, Window, windows


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


Make = Callable[[Sequence[Any], random.Random], Iterable[Any]]
"""(rows of a pool, generator) -> batches; all randomness comes from the generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Batches of rows read on demand.

    Arguments:
        rows: all of them, in order.
        make: turns a pool into batches.
        pool: rows batched together, so that similar lengths share a batch.
        bounds: size of a shuffle window.
        size: of a row, in characters.
    """

    rows: Rows
    make: Make
    pool: int
    bounds: Bounds = USUAL
    seed: int = 0
    size: Callable[[Any], int] = len

    def batches(self, stripe: Stripe, start: Spot) -> Iterator[tuple[Spot, Any]]:
        """Batches of a stripe from a position to the end of the epoch, each with the position after it.

        Raises:
            LoaderFailed: a file is missing, truncated or damaged.
        """
        draw = f"{self.seed} {start.epoch}"
        rows = self.rows.read(start.epoch, start.file, start.row)
        found = windows(rows, stripe, bounds=self.bounds, draw=draw, first=start.window, size=self.size)
        for window in found:
            begins = Spot(start.epoch, window.number, window.file, window.row)
            if window.number == start.window:
                begins = begins._replace(pool=start.pool, batch=start.batch)
            yield from self._of(window, begins, f"{draw} {window.number} {stripe}")
            window.rows.clear()  # free before reading the next: never two in memory

    def _of(self, window: Window, spot: Spot, draw: str) -> Iterator[tuple[Spot, Any]]:
        pools = range(spot.pool, -(-len(window.rows) // self.pool))
        for pool in pools:
            rows = window.rows[pool * self.pool : (pool + 1) * self.pool]
            passed = spot.batch if pool == spot.pool else 0
            made = self.make(rows, random.Random(f"{draw} {pool}"))
            for number, batch in enumerate(islice(made, passed, None), passed + 1):
                yield spot._replace(pool=pool, batch=number), batch
