"""HTML for notebooks: all text is escaped, colors work on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

TONES = {"error": "#d33", "warning": "#d80", "info": "#28c", "good": "#2a4", "plain": "#888"}
"""Colors by meaning."""

MOST_TEXT = 2_000
"""Longest text in characters; a message may contain a whole batch."""


def text(words: object) -> str:
    """Truncate and escape text; newlines become `<br>`."""
    whole = str(words)
    cut = whole if len(whole) <= MOST_TEXT else f"{whole[:MOST_TEXT]} ..."
    return escape(cut.encode("utf-8", "replace").decode("utf-8")).replace("\n", "<br>")


def panel(title: object, lines: Iterable[object] = (), *, tone: str = "plain", parts: Sequence[str] = ()) -> str:
    """A title with a color bar, lines of text, and parts that are already HTML."""
    body = "".join(f'<div style="margin-top:.2em">{text(line)}</div>' for line in lines)
    return (
        f'<div style="border-left:4px solid {TONES[tone]};padding:.2em .8em;margin:.5em 0;line-height:1.4;'
        f'max-width:60em;overflow-wrap:anywhere"><b>{text(title)}</b>{body}{"".join(parts)}</div>'
    )


def table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table with text cells."""
    style = 'style="text-align:left;padding:.1em .8em .1em 0;vertical-align:top"'
    head = "".join(f"<th {style}>{text(each)}</th>" for each in columns)
    body = "".join(f"<tr>{''.join(f'<td {style}>{text(each)}</td>' for each in row)}</tr>" for row in rows)
    return f'<table style="border-collapse:collapse;margin:.3em 0"><tr>{head}</tr>{body}</table>'


WIDTH, HEIGHT = 440, 120


def curve(title: str, points: Sequence[tuple[float, float]], marks: Sequence[float] = ()) -> str:
    """An SVG line chart over the steps, on a log scale if values span decades; marks are red ticks."""
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    newest = f"{finite[-1][1]:.4g}" if finite else "no finite value"
    frame = (
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" fill="none" stroke="#888" stroke-opacity=".4"/>'
        f'<text x="8" y="16" font-size="12" fill="currentColor">{text(title)}: {newest}</text>'
    )
    ticks = line = ""
    if finite:
        values = [y for _, y in finite]
        low, high = min(values), max(values)
        scaled: Callable[[float], float] = math.log10 if low > 0 and high / low > 20 else float
        left, right = finite[0][0], max([finite[-1][0], finite[0][0] + 1, *marks])
        bottom, top = scaled(low), scaled(high)
        span = (top - bottom) or 1.0

        def at(x: float) -> float:
            return 8 + (WIDTH - 16) * (x - left) / (right - left)

        places = " ".join(
            f"{at(x):.1f},{HEIGHT - 18 - (HEIGHT - 44) * (scaled(y) - bottom) / span:.1f}" for x, y in finite
        )
        line = f'<polyline points="{places}" fill="none" stroke="#28c" stroke-width="1.5"/>'
        ticks = "".join(
            f'<rect x="{at(x):.1f}" y="{HEIGHT - 12}" width="2" height="10" fill="#d33"/>' for x in marks if x >= left
        )
        frame += (
            f'<text x="{WIDTH - 8}" y="16" font-size="11" fill="currentColor" opacity=".7" text-anchor="end">'
            f"steps {left:g} to {right:g}, {low:.3g} to {high:.3g}</text>"
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'style="max-width:100%;margin:.2em .4em .2em 0" aria-label="{text(title)}">{frame}{line}{ticks}</svg>'
    )
