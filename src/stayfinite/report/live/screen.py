"""Runs on a terminal: one in full or several as a table, with curves in a line of text and recent events below."""

import math
from collections.abc import Callable, Sequence

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stayfinite.core.run_status import HealthWord, RunStatus
from stayfinite.core.sketch import Stroke
from stayfinite.report.live.words import Spell, clock, number, pace, progress, shown_event, spells, standing
from stayfinite.report.printable import printable

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


STYLES = {
    HealthWord.UNKNOWN: "dim",
    HealthWord.HEALTHY: "bold green",
    HealthWord.WARNING: "bold yellow",
    HealthWord.SICK: "bold red",
    HealthWord.CRITICAL: "bold white on red",
}
SHOWN = 12
"""Events shown below the runs, if there is room."""
LEAST_ROOM = 3
NARROW, WIDE = 90, 130
"""Terminal widths from which the table shows curves, and all columns."""


def screen(statuses: Sequence[RunStatus], console: Console, *, foot: str = "") -> RenderableType:
    """The whole view, no taller than the terminal."""
    plain = console.encoding.lower().replace("-", "") not in ("utf8", "utf16", "utf32")
    if len(statuses) == 1:
        runs = _one(statuses[0], console.width, plain)
    else:
        room = max(1, console.height - LEAST_ROOM - 4)
        order = list(reversed(HealthWord))
        urgent = sorted(statuses, key=lambda status: order.index(status.health.word))
        shown = urgent[:room] if len(statuses) > room else statuses
        runs = _table(shown, console.width, plain)
        if len(shown) < len(statuses):
            left = Text(f"{len(statuses) - len(shown)} more runs do not fit on the screen", "dim")
            runs = Group(runs, left)
    used = len(console.render_lines(runs, pad=False))
    room = min(SHOWN, max(LEAST_ROOM, console.height - used - 3))
    parts: list[RenderableType] = [runs]
    happened = _happened(statuses, room)
    if happened is not None:
        parts.append(Padding(happened, (1, 0, 0, 0)))
    if foot:
        parts.append(Text(foot, style="dim"))
    return Group(*parts)


def _one(status: RunStatus, width: int, plain: bool) -> RenderableType:
    head = Text.assemble(
        (f" {status.health.word} ", STYLES[status.health.word]), " ", (_clean(status.name), "bold"), "  ",
        _clean(status.health.reason),
    )  # fmt: skip
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    room = max(10, min(60, width - 30))
    for label, strokes, value in (
        ("loss", status.losses, status.loss),
        ("grad norm", status.grad_norms, status.grad_norm),
    ):
        if value is not None or strokes:
            drawn = sparkline(strokes, room, style="cyan", plain=plain)
            grid.add_row(label, drawn, Text(number(value), style="bold"))
    figures = [progress(status), pace(status), standing(status)]
    figures += [f"lr {number(status.lr)}"] if status.lr is not None else []
    figures += [f"loss scale {number(status.loss_scale)}"] if status.loss_scale is not None else []
    figures += [f"{status.refused:,} refused"] if status.refused else []
    parts: list[RenderableType] = [head]
    if status.health.fix:
        parts.append(Text.assemble(("fix  ", "bold green"), _clean(status.health.fix)))
    parts += [grid, Text("  ".join(filter(None, figures)))]
    if status.done is not None:
        parts.append(Padding(ProgressBar(total=1.0, completed=status.done, width=min(60, width)), 0))
    return Group(*parts)


_COLUMNS: tuple[tuple[int, str, JustifyMethod, Callable[[RunStatus, bool], RenderableType]], ...] = (
    (0, "run", "left", lambda status, _: Text(_clean(status.name), style="bold")),
    (0, "health", "left", lambda status, _: Text(status.health.word, style=STYLES[status.health.word])),
    (0, "step", "right", lambda status, _: _step(status)),
    (
        NARROW,
        "loss over the run",
        "left",
        lambda status, plain: sparkline(status.losses, 20, style="cyan", plain=plain),
    ),
    (0, "loss", "right", lambda status, _: number(status.loss)),
    (WIDE, "norm", "right", lambda status, _: number(status.grad_norm)),
    (WIDE, "pace", "left", lambda status, _: pace(status)),
    (0, "why", "left", lambda status, _: _cut("; ".join(filter(None, (status.health.reason, standing(status)))))),
)
"""Width of the terminal from which a column is shown, its heading and side, and a run's cell (maybe in plain signs)."""


def _table(statuses: Sequence[RunStatus], width: int, plain: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    shown = [column for column in _COLUMNS if width >= column[0]]
    for _, heading, side, _ in shown:
        # "why" is the only column that shrinks on a narrow terminal.
        table.add_column(heading, justify=side, no_wrap=heading != "why", max_width=28 if heading == "run" else None)
    for status in statuses:
        table.add_row(*(cell(status, plain) for _, _, _, cell in shown))
    return table


def _step(status: RunStatus) -> str:
    share = "" if status.done is None else f" {status.done:.0%}"
    return "-" if status.step is None else f"{status.step:,}{share}"


def _happened(statuses: Sequence[RunStatus], room: int) -> Table | None:
    """The newest events of all runs, by time."""
    told: list[tuple[str, str, Spell]] = [
        (spell.last.time, status.name if len(statuses) > 1 else "", spell)
        for status in statuses
        for spell in spells(status.happenings)[-room:]
    ]
    told = sorted(told, key=lambda each: each[0])[-room:]
    if not told:
        return None
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True, max_width=20)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True, max_width=16)
    grid.add_column()
    for _, name, spell in told:
        grid.add_row(
            clock(spell.last),
            Text(_clean(name), style="bold"),
            spell.steps,
            Text(_clean(f"{shown_event(spell.last)}{spell.times}"), style="yellow" if spell.last.grave else "dim"),
            _cut(spell.last.text),
        )
    return grid


def _cut(text: str) -> Text:
    return Text(_clean(text), no_wrap=True, overflow="ellipsis")


def _clean(text: str) -> str:
    return printable(text).replace("\n", " ").replace("\t", " ")
