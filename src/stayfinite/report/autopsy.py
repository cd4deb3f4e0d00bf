"""Autopsy on the terminal: verdict, origin, table of worlds, fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def draw_autopsy(autopsy: Mapping[str, Any], console: Console) -> None:
    """Print the contents of autopsy.json, and notes about it.

    Each world is the same step with one change. A world that is finite shows which change mattered.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    cause = autopsy.get("cause")
    why = autopsy.get("why") or autopsy.get("verdict") or cause or "no problem"
    console.print(Text(f"{why}\n", style="bold red" if cause else "bold green"))
    for name, words in _facts(autopsy):
        console.print(Text.assemble((f"{name:<8}", "bold"), words))
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name in ("world", "outcome", "loss", "grad norm", "seconds", "changed"):
        numbers = name in ("loss", "grad norm", "seconds")
        table.add_column(name, justify="right" if numbers else "left", no_wrap=name != "changed")
    for world in autopsy.get("worlds") or ():
        error = world.get("error")
        outcome = ("could not run", "yellow") if error else ("finite", "green") if world["finite"] else ("bad", "red")
        table.add_row(
            Text(str(world["name"])), Text(*outcome), _number(world.get("loss")), _number(world.get("grad_norm")),
            f"{world.get('seconds') or 0:.2f}", Text(str(error or world.get("change") or "")),
        )  # fmt: skip
    if table.row_count:
        console.print(Padding(table, (1, 0)))
    for note in autopsy["notes"]:
        console.print(Text(note, style="dim"))


def _facts(autopsy: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = []
    if origin := autopsy.get("origin"):
        forward = f" (gradient of {origin['forward_operator']})" if origin.get("forward_operator") else ""
        place = f", {origin['file']}:{origin['line']}" if origin.get("file") else ""
        where = origin.get("module") or "the loss"
        read_by = f"{origin['leaf']}, read by " if origin.get("leaf") and origin.get("operator") else ""
        what = origin.get("operator") or origin.get("leaf")
        facts.append(("origin", f"{read_by}{what}{forward} in {where}{place}"))
    if rows := autopsy.get("rows"):
        facts.append(("rows", ", ".join(map(str, rows[:16])) + (" …" if len(rows) > 16 else "")))
    fix = autopsy.get("fix") or {}
    if fix.get("text"):
        proof = f"proved by {fix['by']}" if fix.get("verified") else "not proved"
        facts.append(("fix", f"{fix['text']} ({proof})"))
    return facts


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
