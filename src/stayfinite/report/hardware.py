"""Suspect machines on the terminal: a table, then what to do."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stayfinite.report.printable import printable

STYLES = {"suspect": "bold red", "watch": "yellow", "clear": "green", "unknown": "dim"}
SHOWN = 3
"""Mismatches listed per machine."""


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print the machines and their verdicts."""
    table = Table("machine", "launches", "re-run", "transient", "persistent", "NaN steps", "verdict")
    for each in result["machines"]:
        counts = (f"{each[name]:,}" for name in ("launches", "replayed", "transient", "persistent", "bad_steps"))
        verdict = Text(each["verdict"], style=STYLES[each["verdict"]])
        table.add_row(printable(f"{each['host']} {each['device']}"), *counts, verdict)
    if result["machines"]:
        console.print(table)
    for each in result["machines"]:
        if each["verdict"] in ("suspect", "watch"):
            console.print(Text(printable(_why(each))), soft_wrap=True)
    console.print(Text(last_line(result), style="bold"), soft_wrap=True)


def last_line(result: Mapping[str, Any]) -> str:
    """What to do."""
    machines = result["machines"]
    replayed = sum(each["replayed"] for each in machines)
    if suspects := [each for each in machines if each["verdict"] == "suspect"]:
        names = ", ".join(f"{each['host']} {each['device']}" for each in suspects)
        return printable(f"Take {names} out of service and test it: dcgmi diag -r 3, nvidia-smi -q -d ECC.")
    if not replayed:
        return "No result: no step was re-run. Enable it: Policy(replay_every=200), with guard.forward."
    return f"No machine is suspect: {replayed:,} steps were re-run on {len(machines)} device(s)."


def _why(each: Mapping[str, Any]) -> str:
    where = ", ".join(each["places"][-SHOWN:])
    return f"{each['host']} {each['device']}: {each['why']}" + (f" (last: {where})" if where else "")
