"""The rows of all files in one order, shuffled in windows, turned into batches from any position.

All stripes see the same windows and keep their own share. A window's order depends on its number. So a position is a
few numbers on any rank, and an interrupted window can be reproduced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from stayfinite.errors import LoaderFailed, StayfiniteError
from stayfinite.readers.data.chunk import Source

Reader = Callable[[Source], Iterator[Any]]
"""Yields the rows of a file, the same each time."""


class Row(NamedTuple):
    """A row and its position."""

    file: int
    """Index of the file in the epoch's order."""
    number: int
    """Index of the row in the file."""
    value: Any


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an epoch: files in a new order, rows of a file in stored order.

    Arguments:
        reader: yields the rows of a file.
        seed: of the file order.
    """

    files: Sequence[Source]
    reader: Reader
    seed: int = 0

    def read(self, epoch: int, file: int = 0, row: int = 0) -> Iterator[Row]:
        """Rows of an epoch from this position. Raises LoaderFailed if a file is missing, truncated or damaged."""
        order = list(range(len(self.files)))
        random.Random(f"files {self.seed} {epoch}").shuffle(order)
        for number in range(file, len(order)):
            source = self.files[order[number]]
            first = row if number == file else 0
            for at, value in enumerate(islice(self._of(source), first, None), first):
                yield Row(number, at, value)

    def _of(self, source: Source) -> Iterator[Any]:
        try:
            yield from self.reader(source)
        except LoaderFailed:
            raise
        except FileNotFoundError:
            raise LoaderFailed(
                f"{source.path} was removed during training", code="shard-gone", fix=(
                    "restore it, then resume with the same command"
                ),
            ) from None  # fmt: skip
        except OSError as error:
            raise LoaderFailed(
                f"cannot read {source.path}: {error.strerror or error}", code="shard-unreadable",
                fix="fix it, then resume with the same command",
            ) from error  # fmt: skip
        except StayfiniteError as error:
            raise LoaderFailed(error.message, code="shard-unreadable", fix=error.fix) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a window, over all ranks."""

    rows: int = 65_536
    size: int = 64 << 20
    """Characters; a window of long rows has fewer rows."""

    def full(self, rows: int, size: int) -> bool:
        return rows >= self.rows or size >= self.size


USUAL = Bounds()


class Stripe(NamedTuple):
    """One share of the rows: a worker of a rank."""

    number: int
    of: int
    """Number of stripes."""


class Window(NamedTuple):
    """A stripe's share of one window, in training order."""

    number: int
    file: int
    row: int
    rows: list[Any]


def windows(
    rows: Iterable[Row],
    stripe: Stripe,
    *,
    bounds: Bounds,
    draw: str,
    first: int = 0,
    size: Callable[[Any], int] = len,
) -> Iterator[Window]:
    """The windows of these rows.

    Arguments:
        draw: seed and epoch; with the window's number and the stripe it determines the order.
        first: number of the first window.
        size: of a row.
    """
    number, count, weight = first, 0, 0
    begins: tuple[int, int] | None = None
    own: list[Any] = []
    for row in rows:
        if begins is None:
            begins = row.file, row.number
        # Rotate by window, so that no stripe always gets the odd row.
        if (count + number) % stripe.of == stripe.number:
            own.append(row.value)
        count += 1
        weight += size(row.value)
        if bounds.full(count, weight):
            yield Window(number, *begins, _shuffled(own, f"{draw} {number} {stripe}"))
            number, count, weight, begins, own = number + 1, 0, 0, None, []
    if begins is not None:
        yield Window(number, *begins, _shuffled(own, f"{draw} {number} {stripe}"))


def _shuffled(rows: list[Any], draw: str) -> list[Any]:
    random.Random(draw).shuffle(rows)
    return rows


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
