"""Updates lost by 16-bit weights, on the terminal: a table, then what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

MUCH = 0.5
"""Share of lost updates above which the rule `bf16-lost-updates` fires."""


def show(record: Mapping[str, Any], console: Console) -> None:
    """Print the comparison."""
    table = Table("weights", "bytes", "rounded away", "norm lost", "error", "cosine", "loss", box=None)
    for way in record["ways"]:
        table.add_row(
            f"{record['format']}, {way['way']}",
            str(way["bytes"]),
            f"{way['rounded_away']:.1%}",
            f"{way['norm_lost']:.1%}",
            f"{way['error']:.3f}",
            f"{way['cosine']:.4f}",
            f"{way['loss']:.5g}",
        )
    table.add_row("fp32", "4", "", "", "0", "1", f"{record['fp32_loss']:.5g}")
    console.print(table)
    console.print(Text(last_line(record), style="bold"), soft_wrap=True)


def last_line(record: Mapping[str, Any]) -> str:
    """What to do."""
    ways = {way["way"]: way for way in record["ways"]}
    share = ways["nearest"]["rounded_away"]
    lost = f"{record['steps']} steps: {record['format']} weights without an fp32 copy round {share:.0%} of updates to 0"
    if share <= MUCH:
        return f"{lost}. Training works."
    best = min((way for way in ways.values() if way["way"] != "nearest"), key=lambda way: float(way["error"]))
    return f"{lost}. Keep them in fp32 under autocast; least error here: {best['way']} ({best['error']:.2g})."
