"""Speed of `stayfinite scan` against reading the same file once, and its memory.

    python benchmarks/scan_speed.py                   # 2 GB a file, in a temporary directory
    python benchmarks/scan_speed.py --gigabytes 8 --rounds 9

Reading once is the minimum for any program: `readinto` of 8 MiB at a time into one buffer, on one core, with the file
in the page cache. Scanning is all of `scan(path)`, from the header to the findings, on all cores. The two alternate, so
that other load on the machine affects both alike; ratios are taken within a round, quartiles over all.

On a busy machine two threads do not get two cores, which a single reading thread does not notice. So the ratio is shown
by wall time and by processor time: the cost of reading, times the cores, over that of scanning. The promise is judged
by wall time on an idle machine, by processor time on a busy one. Peak memory is that of a process that only scans the
file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from stayfinite.readers.checkpoints.scan import scan

PROMISE = 0.7
MEMORY = 1 << 30
ROWS, COLUMNS = 4096, 4096

FORMS: dict[str, tuple[torch.dtype, str]] = {
    "bf16, safetensors": (torch.bfloat16, "safetensors"),
    "fp16, torch.save": (torch.float16, "pt"),
    "fp32, safetensors": (torch.float32, "safetensors"),
    "fp32, torch.save": (torch.float32, "pt"),
    "fp64, torch.save": (torch.float64, "pt"),
    "fp8, safetensors": (torch.float8_e4m3fn, "safetensors"),
}


class Ratios(NamedTuple):
    """Reading time over scanning time, one ratio per round."""

    clock: list[float]
    processor: list[float]
    speed: float
    """GB/s of the best scan."""


def write(path: Path, dtype: torch.dtype, gigabytes: float) -> None:
    """Write a checkpoint of matrices, each with a norm and a bias."""
    matrix = (torch.randn(ROWS, COLUMNS) * 0.02).to(dtype)
    state: dict[str, Tensor] = {}
    size = 0
    while size < gigabytes * 1e9:
        layer = f"layers.{len(state) // 3}"
        state[f"{layer}.weight"] = matrix.clone()
        state[f"{layer}.norm.weight"] = torch.ones(COLUMNS)
        state[f"{layer}.norm.bias"] = torch.zeros(COLUMNS)
        size += matrix.numel() * matrix.element_size()
    if path.suffix == ".pt":
        torch.save(state, path)
    else:
        save_file(state, path)


def read_once(path: Path) -> None:
    """The minimum for any program."""
    buffer = bytearray(8 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def look(path: Path) -> None:
    """Scan, and check that everything was seen."""
    result = scan([path])
    assert result.verdict == "healthy", result.to_json()


def measure(path: Path, rounds: int, cores: int) -> Ratios:
    """Alternate reading and scanning; the first round, which fills the page cache, is dropped."""
    clock, processor, speeds = [], [], []
    for number in range(rounds + 1):
        reading, scanning = timed(lambda: read_once(path)), timed(lambda: look(path))
        if number:
            clock.append(reading[0] / scanning[0])
            processor.append(cores * reading[1] / scanning[1])
            speeds.append(path.stat().st_size / scanning[0] / 1e9)
    return Ratios(clock, processor, max(speeds))


def peak_memory(path: Path) -> int:
    """Peak memory in bytes of a process that only scans the file."""
    code = (
        "import re, sys; from stayfinite.readers.checkpoints.scan import scan; scan([sys.argv[1]]);"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    return int(done.stdout) << 10


def quartiles(values: list[float]) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f}x ({low:.2f} to {high:.2f})"


def main() -> int:
    """Measure and report; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0]
    clock, processor, largest = float("inf"), float("inf"), 0
    print(f"speed of a scan over reading the file once, {arguments.gigabytes:g} GB in the page cache")
    print(f"{cores} cores, load {load:.1f} before it began")
    print(f"{'':<20}{'by the clock':>24}{'by processor time':>24}{'GB/s':>8}{'peak memory':>14}")
    for name, (dtype, suffix) in FORMS.items():
        with tempfile.TemporaryDirectory(prefix="scan_speed_") as folder:
            path = Path(folder) / f"model.{suffix}"
            write(path, dtype, arguments.gigabytes)
            found = measure(path, arguments.rounds, cores)
            memory = peak_memory(path)
        clock = min(clock, statistics.median(found.clock))
        processor = min(processor, statistics.median(found.processor))
        largest = max(largest, memory)
        columns = f"{quartiles(found.clock):>24}{quartiles(found.processor):>24}{found.speed:>8.1f}"
        print(f"{name:<20}{columns}{memory / (1 << 20):>10.0f} MiB", flush=True)
    idle = load < 0.5
    fast, small = (clock if idle else processor) >= PROMISE, largest < MEMORY
    words = f"by the clock {clock:.2f}, by processor time {processor:.2f} of the speed of reading once"
    print(f"\njudged by {'the clock' if idle else 'processor time, since other processes run'}")
    print(f"{'PASS ' if fast else 'SHORT'} {words}, promised at least {PROMISE}")
    print(f"{'PASS ' if small else 'SHORT'} {largest / (1 << 20):.0f} MiB at most, promised less than {MEMORY >> 20}")
    return int(not (fast and small))


if __name__ == "__main__":
    sys.exit(main())
