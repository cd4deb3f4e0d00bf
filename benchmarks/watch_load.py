"""Load of `stayfinite watch --web` with 100,000 steps and 20 viewers.

    python benchmarks/watch_load.py
    python benchmarks/watch_load.py --steps 10000 --viewers 5 --seconds 10

Writes a run directory, starts the command on it, opens the viewers' streams, and then lets the run continue for a
while, with a veto every second. Shown are the command's processor time for reading the existing steps and, as a share
of one core, for watching with and without viewers; the time from writing a veto to its arrival at each viewer; and the
time of the writer's own lines, the only cost to a training. One more viewer never reads its stream.

Linux only: processor time and memory are read from /proc.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from stayfinite.guard.telling.journal import Journal, now

LATENCY = 2.0
"""Promised seconds within which a veto is seen."""
SHARE = 0.25
"""Promised share of one core while watching."""
COMMAND = "import sys; from stayfinite.cli.watch import run; sys.exit(run(sys.argv[1:]))"


class Writer:
    """Writes steps as the guard does, and times each."""

    def __init__(self, directory: Path, total: int) -> None:
        self._journal = Journal(directory)
        self._journal.whole("run.json", json.dumps({"version": 1, "steps": total, "launches": []}).encode())
        self._journal.line("events.jsonl", {"version": 1, "time": now(), "event": "start", "step": 0})
        self._random = random.Random(0)
        self.step = 0
        self.microseconds: list[float] = []

    def accept(self) -> None:
        """Write a good step."""
        self.step += 1
        loss = 2 + 3 * math.exp(-self.step / 20_000) + self._random.gauss(0, 0.1)
        self._line(loss, 1 + self._random.random(), "accept", "finite")

    def refuse(self) -> str:
        """Write a bad step; returns words to find in the update about it."""
        self.step += 1
        words = f"loss is nan, mark {self.step}"
        self._line(math.nan, math.nan, "veto", "loss-not-finite")
        record = {"version": 1, "time": now(), "event": "veto", "step": self.step, "code": "loss-not-finite"}
        self._journal.line("events.jsonl", record | {"reason": words})
        return words

    def _line(self, loss: float, norm: float, decision: str, code: str) -> None:
        record = {"version": 1, "step": self.step, "loss": loss, "grad_norm": norm, "lr": 1e-4, "loss_scale": None}
        start = time.perf_counter()
        self._journal.line("steps.jsonl", record | {"decision": decision, "code": code})
        self.microseconds.append(1e6 * (time.perf_counter() - start))


class Viewer(threading.Thread):
    """Reads the stream and notes when each marked veto arrives."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.arrived: dict[str, float] = {}
        self.received = 0
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def run(self) -> None:
        """Read until the stream ends."""
        with self._socket.makefile("rb") as stream:
            for line in stream:
                self.received += len(line)
                for words in re.findall(rb"loss is nan, mark \d+", line):
                    self.arrived.setdefault(words.decode(), time.perf_counter())


def processor_seconds(process: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Resident memory of a process in MiB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def go_on(writer: Writer, seconds: float, rate: float) -> dict[str, float]:
    """Write steps at a rate and a veto every second; returns when each veto was written."""
    written: dict[str, float] = {}
    start = time.perf_counter()
    next_veto, steps = 1.0, 0
    while (passed := time.perf_counter() - start) < seconds:
        if passed >= next_veto and seconds - passed > LATENCY:
            moment = time.perf_counter()
            written[writer.refuse()] = moment
            next_veto += 1.0
        while steps < passed * rate:
            writer.accept()
            steps += 1
        time.sleep(1 / rate)
    return written


def measured(arguments: argparse.Namespace, directory: Path) -> int:
    """Run it and print the table."""
    writer = Writer(directory, 2 * arguments.steps)
    for _ in range(arguments.steps):
        writer.accept()
    writer.microseconds.clear()
    go_on(writer, arguments.seconds / 4, arguments.rate)
    alone, begun = statistics.median(writer.microseconds), writer.step
    watch = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(directory), "--web", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    start = time.perf_counter()
    port = int(json.loads(watch.stdout.readline())["url"].rsplit(":", 1)[1].strip("/"))
    for line in watch.stdout:
        if json.loads(line)["step"] == begun:
            break
    read_in, read_for = time.perf_counter() - start, processor_seconds(watch.pid)
    threading.Thread(target=lambda: [None for _ in watch.stdout or ()], daemon=True).start()
    time.sleep(3)
    before = processor_seconds(watch.pid)
    go_on(writer, arguments.seconds / 2, arguments.rate)
    unseen = (processor_seconds(watch.pid) - before) / (arguments.seconds / 2)
    viewers = [Viewer(port) for _ in range(arguments.viewers)]
    deaf = socket.create_connection(("127.0.0.1", port))
    deaf.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for viewer in viewers:
        viewer.start()
    time.sleep(2)
    writer.microseconds.clear()
    before = processor_seconds(watch.pid)
    written = go_on(writer, arguments.seconds, arguments.rate)
    seen = (processor_seconds(watch.pid) - before) / arguments.seconds
    late = sorted(
        viewer.arrived.get(words, math.inf) - moment for words, moment in written.items() for viewer in viewers
    )
    size, sent = memory(watch.pid), sum(viewer.received for viewer in viewers) / len(viewers)
    watch.terminate()
    watch.wait()
    deaf.close()
    rows = [
        ("reading what was there", f"{read_in:.1f} s, {read_for:.1f} s of processor time with the start"),
        ("looking on, no viewer", f"{unseen:.1%} of a core"),
        (f"looking on, {len(viewers)} viewers", f"{seen:.1%} of a core"),
        (
            "a veto reaches a viewer",
            f"{statistics.median(late):.2f} s (median), {late[-1]:.2f} s (last of {len(late)})",
        ),
        ("sent to each viewer", f"{sent / 1024:,.0f} KiB"),
        ("memory of the command", f"{size:.0f} MiB"),
        (
            "a line of the training",
            f"{statistics.median(writer.microseconds):.0f} us, {alone:.0f} us before the command",
        ),
    ]
    print(f"{arguments.steps:,} steps, then {arguments.rate:g} steps/s and a veto a second for {arguments.seconds:g} s")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}")
    for name, value in rows:
        print(f"{name:<28}{value}")
    good = late[-1] < LATENCY and seen < SHARE
    print(f"\n{'PASS' if good else 'FAIL'}  within {LATENCY:g} s and at most {SHARE:.0%} of a core, as promised")
    return int(not good)


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=20.0, help="steps a second")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        return measured(arguments, Path(directory) / "run")


if __name__ == "__main__":
    sys.exit(main())
