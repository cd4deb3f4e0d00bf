"""``stayfinite hardware RUNS...``: find the suspect machine over restarts and ranks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from stayfinite.cli.ending import command, tell
from stayfinite.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Find the machine that computes wrong results, over runs, restarts and ranks. Reads runs with
    Policy(replay_every=...). Exit code 0: none suspect, 1: one suspect, 2: wrong use.
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories, or directories of them."""

    json: bool = False
    """Print the result as JSON and nothing else."""


@command(Hardware, also=(OSError,))
def run(settings: Hardware) -> int:
    """Run the command; 0 if no machine is suspect, 1 if one is, 2 if there is nothing to read."""
    from stayfinite.core.suspects import judge
    from stayfinite.readers.runs.machines import machines_of, runs_in
    from stayfinite.report.hardware import show

    runs = runs_in(settings.paths)
    if not runs:
        named = ", ".join(map(str, settings.paths)) or "nothing"
        raise UsageError(
            f"no run directory in {named}", fix="name the run_dir of a guard, or a directory of them: runs/first"
        )
    machines = machines_of(runs)
    judged: list[dict[str, Any]] = []
    for machine in machines:
        verdict, why = judge(machine, machines)
        judged.append(machine.to_json() | {"verdict": verdict, "why": why})
    order = ("suspect", "watch", "clear", "unknown")
    judged.sort(key=lambda each: (order.index(each["verdict"]), -each["persistent"] - each["transient"]))
    result = {"runs": [str(path) for path in runs], "machines": judged}
    tell("hardware", result, show, as_json=settings.json)
    return int(any(each["verdict"] == "suspect" for each in judged))
