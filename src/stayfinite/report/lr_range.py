"""Plot of a learning-rate range test: loss over rate, with the suggested and diverging rates."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stayfinite.report.plot import empty_figure

KINDS = (".png", ".svg", ".pdf")
MARKS = {"suggested": ("try {:.1e}", "#338855"), "diverges": ("diverges at {:.1e}", "#d62728")}


def save_lr_range(found: Mapping[str, Any], out: Path) -> None:
    """Save a sweep's plain data as a plot. The suffix selects png, svg or pdf."""
    figure = empty_figure(out, KINDS, size=(8, 4.5), example="rates.png")
    axis = figure.subplots()
    points = [(rate, loss) for rate, loss in zip(found["rates"], found["losses"], strict=True) if math.isfinite(loss)]
    smooth = [(rate, loss) for rate, loss in zip(found["rates"], found["smoothed"], strict=True) if math.isfinite(loss)]
    axis.plot(*zip(*points, strict=True), color="#3366aa", alpha=0.35, linewidth=1)
    axis.plot(*zip(*smooth, strict=True), color="#3366aa", linewidth=2, label="loss of one batch")
    for name, (text, colour) in MARKS.items():
        if found.get(name) is not None:
            axis.axvline(found[name], color=colour, linestyle="--", label=text.format(found[name]))
    axis.axvline(found["planned"], color="#666666", linestyle=":", label=f"planned {found['planned']:.1e}")
    first, best = points[0][1], min(loss for _, loss in points)
    axis.set_ylim(best - 0.1 * abs(first - best), first + max(abs(first), 2 * abs(first - best)) * 0.6)
    axis.set_xscale("log")
    axis.set_xlabel("learning rate")
    axis.set_ylabel("loss")
    axis.grid(alpha=0.25)
    axis.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
