"""Plot curves of one or several runs: loss on a log scale, gradient norm, learning rate, bad steps."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stayfinite.core.counting import counted_on
from stayfinite.core.series import RunSeries
from stayfinite.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = (".png", ".svg", ".pdf", ".html")
PANELS = {"loss": "loss", "grad_norm": "gradient norm", "lr": "learning rate", "loss_scale": "loss scale"}
COLOURS = ("#3366aa", "#cc7722", "#338855", "#884499", "#666666", "#aa3355")
BAD = "#d62728"
LANE = 0.04
"""Share of a panel's height per run for its marks of bad steps."""
MOST_MARKS = 400
"""More lines than this merge into one red area."""


def save_plot(runs: Sequence[RunSeries], out: Path, *, title: str = "") -> None:
    """Plot the runs into a file. The suffix selects png, svg, pdf or html."""
    empty = empty_figure(out, KINDS, size=(10, 7), example="loss.png")
    drawn = [counted_on(run) for run in runs if any(run.column(name) for name in PANELS)]
    if not drawn:
        raise UsageError("nothing to plot: no loss, gradient norm or learning rate found", fix="give a training log")
    figure = _figure(drawn, empty, title)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix.lower() == ".html":
        out.write_text(_page(figure, drawn, title), encoding="utf-8")
    else:
        figure.savefig(out, dpi=150)


def empty_figure(out: Path, kinds: Sequence[str], *, size: tuple[float, float], example: str) -> Figure:
    """A figure to draw on. Raises UsageError for a file of another kind, MissingExtra without matplotlib."""
    if out.suffix.lower() not in kinds:
        raise UsageError(f"{out}: expected a name ending in {', '.join(kinds)}", fix=f"-o {example}")
    with MissingExtra.unless("matplotlib", extra="report", what_for="drawing"):
        from matplotlib.figure import Figure
    return Figure(figsize=size, layout="constrained")


def _figure(runs: Sequence[RunSeries], figure: Figure, title: str) -> Figure:
    panels = [name for name in PANELS if any(run.column(name) for run in runs)]
    heights = [2.0 if name == "loss" else 1.0 for name in panels]
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for name, axis in zip(panels, axes, strict=True):
        for lane, run in enumerate(runs):
            colour = COLOURS[lane % len(COLOURS)]
            _draw(axis, run, name, colour, _label(run, runs), lane=lane if len(runs) > 1 else None)
        _scale(axis, name, [value for run in runs for _, value, _ in run.column(name)])
        axis.set_ylabel(PANELS[name])
        axis.grid(alpha=0.25)
        axis.margins(x=0.01)
    handles, labels = axes[0].get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    if len(named) > 1 or len(runs) > 1:
        axes[0].legend(named.values(), named.keys(), loc="upper right", fontsize="small", framealpha=0.8)
    axes[-1].set_xlabel("step")
    if title:
        figure.suptitle(title)
    return figure


def _draw(axis: Axes, run: RunSeries, name: str, colour: str, label: str, lane: int | None) -> None:
    """Draw one run in one panel. With several runs, bad steps are short marks in the run's color at the top."""
    column = run.column(name)
    good = [(step, value) for step, value, _ in column if math.isfinite(value)]
    bad = [step for step, value, _ in column if not math.isfinite(value)]
    if name == "loss":
        # A loss of 0 cannot be drawn on a log scale and is never real: mark it as bad.
        bad += [step for step, value in good if value == 0]
        good = [(step, value) for step, value in good if value != 0]
        for evaluated in ("eval_loss", "val_loss", "valid_loss"):
            track = run.metrics.get(evaluated)
            if track is not None:
                shown = [
                    (s, v) for s, v in zip(track.steps, track.values, strict=True) if s is not None and math.isfinite(v)
                ]
                axis.plot(
                    *_columns(shown), "--o", color=colour, markersize=3, linewidth=1, label=f"{label} {evaluated}"
                )
    few = len(good) <= 60
    axis.plot(*_columns(good), color=colour, linewidth=1.2, marker="o" if few else None, markersize=3, label=label)
    skips = [point.step for point in run.points if point.skipped and point.step is not None]
    low, high = (0.0, 1.0) if lane is None else (1 - LANE * (lane + 1), 1 - LANE * lane)
    for steps, shade, word in ((bad, BAD, "not finite, or 0"), (skips, "#e8a33d", "skipped")):
        alpha = 0.35
        if lane is not None:  # short marks need more contrast, and share one legend entry
            shade, alpha, word = colour, 0.9, "not finite, 0 or skipped"
        for index, step in enumerate(steps[:: max(1, len(steps) // MOST_MARKS)]):
            named = word if index == 0 and name == "loss" else None
            axis.axvline(step, low, high, color=shade, alpha=alpha, linewidth=1, zorder=0, label=named)


def _scale(axis: Axes, name: str, values: Sequence[float]) -> None:
    finite = [value for value in values if math.isfinite(value)]
    if name == "lr" or not finite or max(finite) <= 0:
        return
    if min(finite) < 0:
        axis.set_yscale("symlog")
    elif any(value > 0 for value in finite):
        from matplotlib.ticker import LogFormatterSciNotation

        class PlainLogFormatter(LogFormatterSciNotation):
            """Labels the same ticks in plain numbers: 0.6 and 4, not 6e-1."""

            def __call__(self, x: float, pos: int | None = None) -> str:
                return f"{x:,g}" if super().__call__(x, pos) else ""

        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(PlainLogFormatter())
        axis.yaxis.set_minor_formatter(PlainLogFormatter(minor_thresholds=(1.5, 0.6)))


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _label(run: RunSeries, runs: Sequence[RunSeries]) -> str:
    path = Path(run.source)
    if path.name == "steps.jsonl":  # name a run directory by its own name
        path = path.parent
    alike = sum(Path(other.source).name == path.name for other in runs) > 1
    name = str(path) if alike else path.name
    return f"{name} rank {run.rank}" if run.rank else name


def _page(figure: Figure, runs: Sequence[RunSeries], title: str) -> str:
    drawing = io.StringIO()
    figure.savefig(drawing, format="svg")
    svg = drawing.getvalue()
    svg = svg[svg.index("<svg") :]
    rows = "".join(f"<li>{html.escape(run.source)}: {run.points_seen:,} measurements</li>" for run in runs)
    heading = html.escape(title or "training curves")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{heading}</title>'
        "<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em}"
        "svg{width:100%;height:auto}</style>"
        f"<h1>{heading}</h1>{svg}<ul>{rows}</ul></html>\n"
    )
