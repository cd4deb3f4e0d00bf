"""Windows: so many rows that follow one another, shuffled together, each stripe with its share of them.

Every stripe counts the same windows in the same rows and keeps its own share. A window's order is drawn from its
number. So a place in the stream is a few numbers, whoever reads it, and a window that was left in the middle is the
same again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from stayfinite.recipes.streaming.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is shuffled together, over all ranks."""

    rows: int = 65_536
    size: int = 64 << 20
    """Characters; a window of long rows has fewer of them."""

    def full(self, rows: int, size: int) -> bool:
        """Whether a window of so much is complete."""
        return rows >= self.rows or size >= self.size


USUAL = Bounds()


class Stripe(NamedTuple):
    """One of several shares of the rows: a worker of a rank."""

    number: int
    of: int
    """How many there are."""


class Window(NamedTuple):
    """A stripe's share of one window, in the order in which it is trained on."""

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
    """The windows that these rows make.

    Arguments:
        draw: what the order depends on, with the window's number and the stripe: a seed and an epoch.
        first: number of the first window, which begins at the first row.
        size: of a row.
    """
    number, count, weight = first, 0, 0
    begins: tuple[int, int] | None = None
    own: list[Any] = []
    for row in rows:
        if begins is None:
            begins = row.file, row.number
        # The window's number moves the turn on, so that no stripe has the odd row every time.
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
