"""Inspection on the terminal: banner, checks, verdict."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stayfinite.report.printable import printable_parts

MARKS = {
    "pass": ("ok  ", "green"),
    "warn": ("warn", "bold yellow"),
    "fail": ("FAIL", "bold red"),
    "note": ("note", "cyan"),
    "skip": ("skip", "dim"),
}


def show_inspection(
    inspection: Mapping[str, Any], console: Console, *, quiet: bool = False, verbose: bool = False
) -> None:
    """Print an inspection from its plain data.

    Arguments:
        quiet: findings only.
        verbose: every check, including passed and skipped ones.
    """
    inspection = printable_parts(inspection)
    width = max((len(name) for name in inspection["banner"]), default=0)
    for name, text in inspection["banner"].items() if not quiet else ():
        console.print(Text.assemble((f"{name:<{width}}  ", "bold"), text))
    shown = MARKS if verbose else ("warn", "fail") if quiet else ("warn", "fail", "note")
    columns = _columns(inspection)
    chosen = [_with_columns(line, columns) for line in inspection["checks"] if line["status"] in shown]
    for group, lines in groupby(chosen, key=lambda line: line["group"]):
        console.print(Text(f"\n{group}", style="bold"))
        for line in lines:
            _show_line(line, console)
    if quiet:
        return
    for table in inspection["tables"]:
        console.print()
        console.print(_drawn(table))
    for ignored in inspection["ignored"]:
        what = f"{ignored['finding']['where']}: {ignored['finding']['code']} ignored: {ignored['reason']}"
        console.print(Text(f"\n{what}", style="dim"))
    console.print(verdict_line(inspection))


def _columns(inspection: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """The column by code and place: a line may have several findings."""
    placed = ((finding["code"], finding.get("place")) for finding in inspection["findings"])
    return {(code, f"{place['path']}:{place['line']}"): place["column"] for code, place in placed if place}


def _with_columns(line: Mapping[str, Any], columns: Mapping[tuple[str, str], int]) -> Mapping[str, Any]:
    """Replace `train.yaml:3` at the start of the evidence with `train.yaml:3:16`, which editors can open."""
    where, colon, rest = line["seen"].partition(": ")
    column = columns.get((line["code"], where))
    return line if column is None else {**line, "seen": f"{where}:{column}{colon}{rest}"}


def verdict_line(inspection: Mapping[str, Any]) -> Text:
    """The last line: ready to launch, or what to fix first."""
    count = {status: sum(line["status"] == status for line in inspection["checks"]) for status in MARKS}
    looked = sum(count[status] for status in ("pass", "warn", "fail", "note"))
    if inspection["verdict"] == "unknown":
        return Text("\nNothing could be checked.", style="bold yellow")
    if inspection["verdict"] == "healthy":
        checks = "1 check" if looked == 1 else f"{looked} checks"
        return Text(f"\nReady to launch: {checks}, no problem found.", style="bold green")
    errors = f"{count['fail']} error{'s' * (count['fail'] > 1)}"
    wrong = [errors] * bool(count["fail"]) + [f"{count['warn']} to review"] * bool(count["warn"])
    first = next(line for line in inspection["checks"] if line["status"] in ("fail", "warn"))
    worst = next((line for line in inspection["checks"] if line["status"] == "fail"), first)
    return Text(
        f"\nNot ready: {', '.join(wrong)}. Start with {_place_in(inspection, worst)} ({worst['code']}).",
        style="bold red" if count["fail"] else "bold yellow",
    )


def _place_in(inspection: Mapping[str, Any], line: Mapping[str, Any]) -> str:
    """`train.yaml:3:16`, or the fix where a finding has no place."""
    seen = _with_columns(line, _columns(inspection))["seen"]
    places = (each.get("place") for each in inspection["findings"] if each["code"] == line["code"])
    named = (f"{place['path']}:{place['line']}:{place['column']}" for place in places if place)
    return next((each for each in named if seen.startswith(each)), f"this fix: {line['fix']}")


def _show_line(line: Mapping[str, Any], console: Console) -> None:
    """Print one check. A passed check is one line."""
    mark, style = MARKS[line["status"]]
    wrong = line["status"] in ("warn", "fail")
    beside = f"  {line['seen']}" if line["seen"] and not wrong else ""
    body = Text.assemble(line["title"], (beside, "dim"))
    if wrong:
        body.append(f"\n{line['seen']}" if line["seen"] else "")
        body.append_text(Text.assemble("\n", ("fix  ", "bold green"), line["fix"], (f"  {line['code']}", "dim")))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=4)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), body)
    console.print(Padding(grid, (0, 0, 0, 2)))


def _drawn(table: Mapping[str, Any]) -> Table:
    drawn = Table(*table["columns"], title=table["title"], title_justify="left", box=None, pad_edge=False)
    for row in table["rows"]:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn
