"""The runs of a directory on the terminal, a line each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from stayfinite.report.diagnosis import STYLES
from stayfinite.report.printable import printable_parts

NAMED = 0.3
"""A cause is named from this confidence on."""


def show_apart(
    directory: Path, verdicts: Sequence[Mapping[str, Any]], sources: Sequence[Mapping[str, Any]], console: Console
) -> None:
    """Print each run's verdict with what it shows and its likeliest cause, then what was left out and what to do next.

    Arguments:
        directory: that holds the runs.
        verdicts: on each of them, as plain data.
        sources: what was found in the directory, as plain data.
        console: to print on.
    """
    verdicts, sources = printable_parts(list(verdicts)), printable_parts(list(sources))
    console.print(Text(f"{printable_parts(str(directory))} holds separate runs, judged one by one:", style="bold"))
    names = [_name(each["paths"], directory) for each in verdicts]
    width = min(40, max(map(len, names)))
    for each, name in zip(verdicts, names, strict=True):
        cause = each["cause"]
        named = cause is not None and cause["confidence"] >= NAMED
        known = f"{cause['code']} {cause['cause']} ({cause['confidence']:.0%})" if named else ""
        why = "; ".join(filter(None, (*each["trouble"], known)))
        beside = f"{name:<{width}}  {why}".rstrip()
        console.print(Text.assemble((f"{each['verdict']:<9}", STYLES[each["verdict"]]), beside))
    used = {path for each in verdicts for path in each["paths"]}
    for source in sources:
        if source["read_as"] == "config" and source["path"] not in used:
            console.print(Text(f"\nnot used: {source['path']}: name it with the log of its run", style="yellow"))
        elif not source["read_as"]:
            console.print(Text(f"\nnot read: {source['path']}: {source['said']}", style="yellow"))
    worst = next((each for each in verdicts if each["verdict"] == "sick"), verdicts[0])
    console.print(Text(f"\nMore: stayfinite diagnose {' '.join(worst['paths'])}", style="dim"))


def _name(paths: Sequence[str], directory: Path) -> str:
    inside = [Path(path).relative_to(directory) if directory in Path(path).parents else path for path in paths]
    return " + ".join(map(str, inside))
