"""Shuffle windows: consecutive rows, shuffled together, shared among stripes.

All stripes see the same windows and keep their own share. A window's order depends on its number. So a position is a
few numbers on any rank, and an interrupted window can be reproduced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from stayfinite.recipes.streaming.rows import Row


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
