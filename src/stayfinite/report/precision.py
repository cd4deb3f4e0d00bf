"""Precision plan on the terminal: modules that break, options tried, and the plan in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stayfinite.report.printable import printable_parts

FORMATS = ("tf32", "bf16", "fp16", "fp8", "fp8-rowwise")


def show_plan(plan: Mapping[str, Any], console: Console, *, every: bool = False) -> None:
    """Print a plan from its plain data.

    Arguments:
        every: show all modules tried in a format, not only those that break.
    """
    plan = printable_parts(plan)
    rows = [row for row in plan["rows"] if row["breaks"] or (every and row["errors"])]
    tried = [kind for kind in FORMATS if any(kind in row["errors"] or kind in row["breaks"] for row in plan["rows"])]
    if rows:
        console.print(_modules(rows, tried))
        console.print()
    else:
        console.print(Text(f"No module breaks in {', '.join(tried)}." if tried else "Nothing multiplies here."))
    for row in rows:
        for kind, why in row["breaks"].items():
            console.print(Text.assemble(f"{row['name']}: ", (kind, "bold"), f" breaks: {why}"))
    console.print()
    console.print(_options(plan["options"]))
    for note in plan["notes"]:
        console.print(Text(note, style="yellow"))
    console.print(Text(f"\n{plan['sentence']}", style="bold"))


def _modules(rows: list[Mapping[str, Any]], tried: list[str]) -> Table:
    columns = ("module", "input", "output", "grad", *tried)
    table = Table(*columns, title="Largest values, and error of each format", title_justify="left", box=None)
    for row in rows:
        sizes = (row["largest"].get(what) for what in ("input", "output", "grad_output"))
        errors = (_error(row, kind) for kind in tried)
        table.add_row(Text(row["name"]), *(_number(size) for size in sizes), *errors)
    return table


def _error(row: Mapping[str, Any], kind: str) -> Text:
    found = row["errors"].get(kind)
    if found is None:
        return Text("breaks" if kind in row["breaks"] else "-", style="red" if kind in row["breaks"] else "dim")
    worst = max(float(found[what]) for what in ("output", "grad_input", "grad_weight"))
    return Text(f"{worst:.1%}" if worst < 10 else "overflow", style="bold red" if kind in row["breaks"] else "")


def _options(options: list[Mapping[str, Any]]) -> Table:
    columns = ("tried", "ms a step", "loss error", "gradient cosine", "kept in fp32", "in fp8", "")
    table = Table(*columns, title="Whole assignments against fp32", title_justify="left", box=None)
    for each in options:
        kinds = list(each["formats"].values())
        eight = sum(kind.startswith("fp8") for kind in kinds)
        ms = "-" if each["ms"] is None else f"{float(each['ms']):.3g}{'' if each['measured'] else ' est.'}"
        name = each["base"] + ("+fp8" if eight else "")
        fits = Text("fits", style="green") if each["fits"] else Text("over the error budget", style="yellow")
        table.add_row(
            name, ms, f"{float(each['loss']):.2g}", f"{float(each['cosine']):.5f}", str(len(kinds) - eight),
            str(eight), fits,
        )  # fmt: skip
    return table


def _number(value: Any) -> str:
    return "-" if value is None else f"{float(value):.3g}"
