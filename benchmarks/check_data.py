"""Time and memory of `stayfinite check --data` for a million rows.

    python benchmarks/check_data.py
    python benchmarks/check_data.py --rows 100000 --formats csv jsonl

Rows are pairs of sentences of 3 to 30 words, about a third of them with non-ASCII letters; a second file with a
fiftieth of the rows is compared with them. Every check is on: copies, overlap, damage, characters, lengths, and what a
limit would truncate. Each file is checked by `python -m stayfinite check` in its own process; seconds are those of the
whole process. Peak memory is the process's `VmHWM`.

The promise is judged by wall time on an idle machine, by processor time on a busy one.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

SECONDS = 60.0
MEMORY = 1 << 30
NAMES = ("id", "source", "target")
Row = tuple[str, str, str]


def rows(count: int, seed: int) -> Iterator[Row]:
    """Pairs of sentences of random words."""
    rng = random.Random(seed)
    spoken = random.Random(0)
    plain = ["".join(spoken.choices("abdegiklmnprstuz", k=spoken.randint(2, 7))) for _ in range(5000)]
    written = [*plain, *(f"š{word}" for word in plain[:60]), *(f"{word}₂" for word in plain[:60])]
    for number in range(count):
        source, target = rng.choices(written, k=rng.randint(3, 30)), rng.choices(plain, k=rng.randint(3, 30))
        yield f"{seed}-{number}", " ".join(source), " ".join(target)


def write_csv(path: Path, count: int, seed: int) -> None:
    """One row per line, with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(NAMES)
        writer.writerows(rows(count, seed))


def write_jsonl(path: Path, count: int, seed: int) -> None:
    """One object per line."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows(count, seed):
            file.write(json.dumps(dict(zip(NAMES, row, strict=True)), ensure_ascii=False) + "\n")


def write_parquet(path: Path, count: int, seed: int) -> None:
    """Compressed columns."""
    import pyarrow
    import pyarrow.parquet

    columns = zip(*rows(count, seed), strict=True)
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(NAMES, map(list, columns), strict=True))), path)


WRITERS: dict[str, Callable[[Path, int, int], None]] = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
}


class Cost(NamedTuple):
    """Cost of one check."""

    clock: float
    processor: float
    memory: int


def check(train: Path, val: Path) -> Cost:
    """Run the command in its own process."""
    code = (
        "import re, sys; from stayfinite.cli.check import run; code = run(sys.argv[1:]);"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr);"
        "sys.exit(code)"
    )
    arguments = ["--data", str(train), "--val", str(val), "--tokenizer", "bytes", "--max-length", "512"]
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    clock, after = time.perf_counter() - start, os.times()
    assert done.returncode == 0, done.stdout + done.stderr
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(clock, used, int(done.stderr.split()[-1]) << 10)


def main() -> int:
    """Measure and report; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--formats", nargs="+", default=list(WRITERS), choices=list(WRITERS))
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0]
    print(f"`stayfinite check --data --val --tokenizer bytes --max-length 512`, {arguments.rows:,} rows")
    print(f"{cores} cores, load {load:.1f} before it began")
    print(f"{'':<10}{'file':>10}{'by the clock':>16}{'processor time':>17}{'rows a second':>16}{'peak memory':>14}")
    costs = []
    for name in arguments.formats:
        with tempfile.TemporaryDirectory(prefix="check_data_") as folder:
            train, val = Path(folder) / f"train.{name}", Path(folder) / f"val.{name}"
            WRITERS[name](train, arguments.rows, 1)
            WRITERS[name](val, arguments.rows // 50, 2)
            size = train.stat().st_size
            cost = check(train, val)
        costs.append(cost)
        rate = arguments.rows / cost.processor
        figures = f"{cost.clock:>14.1f} s{cost.processor:>15.1f} s{rate:>16,.0f}{cost.memory / (1 << 20):>10.0f} MiB"
        print(f"{name:<10}{size / 1e6:>7.0f} MB{figures}", flush=True)
    idle = load < 0.5
    slowest = max(cost.clock if idle else cost.processor for cost in costs)
    largest = max(cost.memory for cost in costs)
    fast, small = slowest < SECONDS, largest < MEMORY
    print(f"\njudged by {'the clock' if idle else 'processor time, since other processes run'}")
    print(f"{'PASS ' if fast else 'SHORT'} {slowest:.1f} s at most, promised less than {SECONDS:g}")
    print(f"{'PASS ' if small else 'SHORT'} {largest / (1 << 20):.0f} MiB at most, promised less than {MEMORY >> 20}")
    return int(not (fast and small))


if __name__ == "__main__":
    sys.exit(main())
