"""Two plans side by side on the terminal: settings that affect stability, then the rest."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stayfinite.report.printable import printable_parts

WIDEST = 40
"""Characters shown of a value."""


def show_difference(comparison: Mapping[str, Any], console: Console, *, everything: bool = False) -> None:
    """Print a comparison from its plain data."""
    comparison = printable_parts(comparison)
    if comparison["same"]:
        console.print(Text(f"Same: {_all(comparison['equal'])} equal.", style="bold green"))
        return
    shown = [each for each in comparison["one_sided"] if everything or each["means"]]
    parts = (
        ("Differences that affect stability", comparison["training"]),
        ("Other differences", comparison["other"]),
        ("Set on one side only", shown),
    )
    widths = _widths(comparison, [row for _, rows in parts for row in rows])
    heading = f"  {'':<{widths[0]}}  {comparison['left']:<{widths[1]}}  {comparison['right']}"
    console.print(Text(heading.rstrip(), style="bold"))
    for title, rows in parts:
        if rows:
            console.print(Text(f"\n{title}", style="bold"))
        for row in rows:
            _show_row(row, widths, console)
    hidden = len(comparison["one_sided"]) - len(shown)
    weighty, other = len(comparison["training"]), len(comparison["other"])
    counts = [f"{weighty} affect{'s' if weighty == 1 else ''} stability", f"{other} other{'' if other == 1 else 's'}"]
    counts.append(f"{len(comparison['one_sided'])} on one side only{' (--all shows them)' if hidden else ''}")
    equal = comparison["equal"]
    same = f"{equal} {'is' if equal == 1 else 'are'} equal"
    console.print(Text(f"\n{', '.join(counts)}; {same}.", style="dim"))


def _all(count: int) -> str:
    return "the only setting is" if count == 1 else f"all {count} settings are"


def _widths(comparison: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    names = max((len(row["name"]) for row in rows), default=0)
    return names, max([len(comparison["left"]), *(len("".join(_value(row["left"]))) for row in rows)])


def _show_row(row: Mapping[str, Any], widths: tuple[int, int], console: Console) -> None:
    (left, left_line), (right, right_line) = _value(row["left"]), _value(row["right"])
    gap = " " * (widths[1] - len(left) - len(left_line))
    name = f"  {row['name']:<{widths[0]}}  "
    console.print(
        Text.assemble(name, (left, "bold"), (left_line, "dim"), f"{gap}  ", (right, "bold"), (right_line, "dim"))
    )
    if row["means"] and row["left"] is not None and row["right"] is not None:
        console.print(Padding(Text(row["means"], style="dim"), (0, 0, 0, 6)))


def _value(side: Mapping[str, Any] | None) -> tuple[str, str]:
    """The value, truncated if long, and its line number."""
    if side is None:
        return "-", ""
    value = f"{side['value']:g}" if isinstance(side["value"], float) else " ".join(str(side["value"]).split())
    line = side["where"].rpartition(":")[2]
    return (value if len(value) <= WIDEST else value[: WIDEST - 3] + "..."), f" :{line}" if line.isdigit() else ""
