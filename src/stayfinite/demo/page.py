"""The three lanes on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stayfinite.guard.telling.showing import shown_runs
from stayfinite.report.page.data import page_data
from stayfinite.report.page.file import write_page

REPORT = "report.html"


def draw_page(out: Path, *, every: int) -> None:
    """Write report.html beside the lanes' logs.

    Arguments:
        every: steps between lines of the wild log, which has no step numbers.
    """
    fp32, wild, guarded = shown_runs([out / "fp32.jsonl", out / "fp16.log", out / "guarded"])
    names = ("fp32", "fp16, as found in the wild", "fp16, guarded")
    runs: list[dict[str, Any]] = [fp32, _counted_in_steps(wild, every), guarded]
    named = [run | {"name": name} for run, name in zip(runs, names, strict=True)]
    write_page(page_data(named, title="one model, three trainings"), out / REPORT)


def _counted_in_steps(run: dict[str, Any], every: int) -> dict[str, Any]:
    """Add step numbers to a log without them."""
    series = {
        name: {
            "x": [(place + 1) * every for place in curve["x"]],
            "y": curve["y"],
            "bad": [[(first + 1) * every, (last + 1) * every, *rest] for first, last, *rest in curve["bad"]],
        }
        for name, curve in run["series"].items()
    }
    return run | {"series": series, "note": ""}
