"""Rescaled network on the terminal: what was too large, what changed, and the proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stayfinite.report.printable import printable

SHOWN = 8
RANGE = 65504.0


def show(record: Mapping[str, Any], out: str | None, console: Console) -> None:
    """Print the result."""

    def say(line: str, style: str = "") -> None:
        console.print(Text(printable(line), style=style), soft_wrap=True)

    say(f"{record['architecture']}, measured on {record['data']}.")
    table = Table("module", "largest before", "after", "of fp16's range")
    worst = sorted(record["modules"].items(), key=lambda item: -item[1][0])[:SHOWN]
    for module, (before, after) in worst:
        table.add_row(printable(module), f"{before:,.4g}", f"{after:,.4g}", f"{after / RANGE:.2g}")
    console.print(table)
    for change in record["changes"]:
        nearly = ", approximately: the norms' epsilon cannot be rescaled" if change["nearly"] else ""
        say(f"{change['freedom']}: x 2**{change['exponent']} ({change['because']} {change['largest']:.3g}{nearly})")
    if record["changes"]:
        say(
            f"Same function in fp32: logits differ by {record['logits_difference']:.1e}, "
            f"loss by {record['loss_difference']:.1e} (relative)."
        )
        say(
            f"Rounded to 0 in fp16: {record['lost_before']:.2%} of the activations before, {record['lost_after']:.2%} "
            f"after; weights {record['lost_weights_before']:.2%} and {record['lost_weights_after']:.2%}."
        )
    for trial in record["trials"]:
        say(_trial(trial))
    for obstacle in record["obstacles"][:SHOWN]:
        say(f"Obstacle: {obstacle['module']} reaches {obstacle['largest']:.3g}: {obstacle['why']}.", "yellow")
    say(last_line(record, out), "bold")


def last_line(record: Mapping[str, Any], out: str | None) -> str:
    """The verdict, and what to do."""
    largest = (
        f"largest activation {record['largest_after']:,.4g}, {record['largest_after'] / RANGE:.2g} of fp16's range"
    )
    where = f" Saved to {out}." if out and record["changes"] else ""
    kept = record["keep_in_fp32"]
    keep = f"Keep in fp32: {', '.join(kept[:SHOWN])}" + (
        f" and {len(kept) - SHOWN} more." if len(kept) > SHOWN else "."
    )
    if record["verdict"] == "nothing to do":
        return f"Nothing to do: {largest}."
    if record["verdict"] == "rescaled":
        rates = " Train it with AdamW(matching_groups(model, OUT, lr=...)): rescaled weights need their own rates."
        return f"Rescaled: {largest}.{where}{rates.replace('OUT', repr(out)) if out else ''}"
    if record["verdict"] == "partly":
        return f"Partly rescaled: {largest}.{where} {keep}"
    return f"Not rescaled: {largest}. {keep}"


def _trial(trial: Mapping[str, Any]) -> str:
    what = f"{trial['network']} in {trial['precision']}: {trial['steps']} steps"
    if trial["overflows"]:
        return f"{what}, {trial['overflows']} overflowed in the forward pass."
    search = f", {trial['skipped']} skipped while the loss scale was searched" if trial["skipped"] else ""
    end = f", loss {trial['first_loss']:.4g} to {trial['last_loss']:.4g}" if trial["last_loss"] is not None else ""
    return f"{what}{search}{end}."
