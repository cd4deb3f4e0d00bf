"""Plain numbers on a log axis: 0.6 and 4, not 6e-1. Needs matplotlib."""

from __future__ import annotations

from matplotlib.ticker import LogFormatterSciNotation


class PlainLogFormatter(LogFormatterSciNotation):
    """Labels the same ticks as matplotlib, in plain numbers."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick; empty if matplotlib leaves it blank."""
        return f"{x:,g}" if super().__call__(x, pos) else ""
