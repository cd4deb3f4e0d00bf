"""Cost of `stayfinite watch` over a directory of many runs: processor time of the command.

python -m benchmarks.watch_many --runs 1000 --active 100 --seconds 60
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.watch_load import memory, processor_seconds

LINE = {"version": 1, "grad_norm": 1.0, "lr": 1e-3, "loss_scale": None, "decision": "accept", "code": "finite"}


def main() -> None:
    """Write runs, watch them while some continue, print the share of a core."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--active", type=int, default=100, help="runs that take a step a second")
    parser.add_argument("--steps", type=int, default=200, help="that each run has before")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / f"run-{number:04d}" for number in range(given.runs)]
        for place in places:
            place.mkdir()
            (place / "run.json").write_text(json.dumps({"version": 1, "launches": []}))
            (place / "steps.jsonl").write_text("".join(_line(step) for step in range(1, given.steps + 1)))
        command = [sys.executable, "-m", "stayfinite", "watch", folder, "--json"]
        told = Path(folder).with_suffix(".jsonl")
        with told.open("wb") as out, subprocess.Popen(command, stdout=out) as watch:
            _settle(told, given.runs)
            step = given.steps
            start, wall = processor_seconds(watch.pid), time.monotonic()
            print(f"start: {start:.1f} s of processor time for {given.runs} runs of {given.steps} steps")
            while time.monotonic() - wall < given.seconds:
                step += 1
                _take(places[: given.active], step)
                time.sleep(1.0)
            used, took = processor_seconds(watch.pid) - start, time.monotonic() - wall
            held = memory(watch.pid)
            watch.terminate()
        told.unlink()
        print(
            f"then: {used:.2f} s in {took:.0f} s, {used / took:.1%} of a core; {held:.0f} MiB; cores {os.cpu_count()}"
        )


def _settle(told: Path, runs: int) -> None:
    """Wait until every run was read and reported."""
    while told.read_bytes().count(b"\n") < runs:
        time.sleep(1.0)


def _take(places: list[Path], step: int) -> None:
    for place in places:
        with (place / "steps.jsonl").open("a") as file:
            file.write(_line(step))


def _line(step: int) -> str:
    return json.dumps(LINE | {"step": step, "loss": 0.5 + 3 * math.exp(-step / 100)}) + "\n"


if __name__ == "__main__":
    main()
