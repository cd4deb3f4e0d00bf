"""Doctor's result on the terminal: a headline, then cause, place and fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stayfinite.report.diagnosis import STYLES
from stayfinite.report.printable import printable

SHOWN = 3


def show_seen(said: Mapping[str, Any], console: Console) -> None:
    """Print the result from its plain data."""
    verdict = said["verdict"]
    console.print(Text.assemble((verdict, STYLES[verdict]), f"  {headline(said)}"))
    loud = [finding for finding in said["findings"] if finding["severity"] != "info"]
    for finding in loud[:SHOWN]:
        _show(finding, console)
    if len(loud) > SHOWN:
        names = ", ".join(f"{each['code']} {each['cause']}" for each in loud[SHOWN:])
        console.print(Text(f"\nalso: {names}", style="dim"))
    patch = said.get("patch")
    if patch:
        console.print(Text(f"\npatch  {printable(patch['file'])}: {patch['words']}"))
    if said.get("not_examined"):
        words = printable(said["not_examined"])
        console.print(Text(f"\nSkipped the one-batch test: {words}.", style="dim"))
    if loud:
        console.print(Text(f"\nMore: stayfinite explain {loud[0]['code']}", style="dim"))


def headline(said: Mapping[str, Any]) -> str:
    """One line: how far the program got, and what was seen."""
    names = ", ".join(dict.fromkeys(said["optimizers"]))
    parts = [f"{_steps(said['steps'])}{f' with {names}' if names else ''}"]
    if said["bad_step"] is not None:
        parts.append(f"NaN or inf at step {said['bad_step']}")
    if said["refused"]:
        parts.append(f"{_steps(said['refused'])} refused")
    if len(said.get("losses", [])) == 2 and said["bad_step"] not in (0, 1):
        parts.append(f"loss {said['losses'][0]:.4g} to {said['losses'][1]:.4g}")
    if said.get("ended"):
        parts.append(said["ended"])
    return printable("; ".join(parts)) + "."


def _steps(count: int) -> str:
    return f"{count:,} step{'' if count == 1 else 's'}"


def _show(finding: Mapping[str, Any], console: Console) -> None:
    color = "red" if finding["severity"] == "error" else "yellow"
    where = f" at {printable(finding['where'])}" if finding["where"] else ""
    console.print(
        Text.assemble(
            "\n", (f"{finding['code']} {finding['cause']}", f"bold {color}"), f"{where}  ({finding['known_by']})"
        )
    )
    console.print(Padding(Text(printable(finding["title"])), (0, 0, 0, 2), expand=False))
    for line in finding["evidence"]:
        console.print(Padding(Text(printable(line), overflow="fold"), (0, 0, 0, 2), expand=False))
    console.print(
        Padding(Text.assemble(("fix  ", "bold green"), printable(finding["fix"])), (0, 0, 0, 2), expand=False)
    )
