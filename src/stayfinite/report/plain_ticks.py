"""Numbers at a logarithmic axis as people write them: 0.6 and 4, not 6 times ten to the minus one. Needs matplotlib."""

from __future__ import annotations

from matplotlib.ticker import LogFormatterSciNotation


class PlainLogFormatter(LogFormatterSciNotation):
    """Labels the ticks that matplotlib would, in plain numbers."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick; empty for one that has none."""
        return f"{x:,g}" if super().__call__(x, pos) else ""
