"""A curve in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from stayfinite.core.sketch import Stroke

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = "_.-=+*%#"
"""For terminals without block characters."""
BAD, PLAIN_BAD = "\N{MULTIPLICATION SIGN}", "x"
LOGARITHMIC = 8.0
"""Positive values that differ by more than this factor are drawn on a log scale."""


def sparkline(strokes: Sequence[Stroke], width: int, *, style: str = "", plain: bool = False) -> Text:
    """At most ``width`` blocks, low to high; a red cross for a non-finite value, a blank for a missing one."""
    strokes = _squeezed(strokes, width)
    blocks, cross = (PLAIN_BLOCKS, PLAIN_BAD) if plain else (BLOCKS, BAD)
    heights = _heights([stroke.mean for stroke in strokes], len(blocks))
    drawn = Text()
    for stroke, height in zip(strokes, heights, strict=True):
        if stroke.bad:
            drawn.append(cross, style="bold red")
        else:
            drawn.append(" " if height is None else blocks[height], style=style)
    return drawn


def _squeezed(strokes: Sequence[Stroke], width: int) -> Sequence[Stroke]:
    count = len(strokes)
    if count <= width:
        return strokes
    parts = [strokes[place * count // width : (place + 1) * count // width] for place in range(width)]
    return [Stroke(_mean([stroke.mean for stroke in part]), any(stroke.bad for stroke in part)) for part in parts]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value / len(values) for value in values if value is not None]
    return sum(known) * len(values) / len(known) if known else None


def _heights(values: Sequence[float | None], levels: int) -> list[int | None]:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return [None] * len(values)
    low, high = min(known), max(known)
    logarithmic = low > 0 and high > LOGARITHMIC * low
    if logarithmic:
        low, high = math.log(low), math.log(high)
    heights: list[int | None] = []
    for value in values:
        if value is None or not math.isfinite(value):
            heights.append(None)
            continue
        # Halve first: the difference of two finite numbers may overflow.
        span = high / 2 - low / 2
        share = ((math.log(value) if logarithmic else value) / 2 - low / 2) / span if span > 0 else 0.0
        heights.append(min(levels - 1, int(share * levels)))
    return heights
