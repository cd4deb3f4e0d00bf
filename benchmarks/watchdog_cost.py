"""Cost of the watchdog and the slowest-rank measurement for a healthy step of several ranks.

    python benchmarks/watchdog_cost.py                  # 2 ranks over gloo on this machine
    python benchmarks/watchdog_cost.py --ranks 4 --rounds 40

One training, one guard: turns of steps with and without them alternate in changing order, so that other load on the
machine affects both alike. The ratio is that of the medians over all turns, on rank 0. A line below shows the four
marks of a step alone.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from rich.console import Console
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from stayfinite import Guard, Policy
from stayfinite.core.stalls import Phase
from stayfinite.guard.ranks.progress import Progress

PROMISE = 1.01
STEPS = 25
"""Steps per turn."""

MARKS = 100_000


class Unwatched(Progress):
    """Replaces a guard's progress: marks nothing, measures no rank."""

    def __init__(self) -> None:
        pass

    def at(self, phase: Phase, step: int) -> None:
        """Nothing."""

    def slowest(self, step: int) -> None:
        """Nobody."""

    def stop(self) -> None:
        """Nothing."""


def rank_of(rank: int, ranks: int, port: int, rounds: int, run_dir: str) -> None:
    """One rank's part; rank 0 prints."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    layers = [each for _ in range(6) for each in (nn.Linear(384, 384), nn.Tanh())]
    model = DistributedDataParallel(nn.Sequential(*layers))
    guard = Guard(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-5),
        policy=Policy(snapshots=False, desync_steps=0, report=False),
        run_dir=run_dir,
        console=Console(quiet=True),
    )
    watched = guard._progress
    batch = torch.randn(64, 384)
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds + 1):
        for on in (True, False) if number % 2 else (False, True):
            guard._progress = watched if on else Unwatched()
            dist.barrier()
            begun = time.perf_counter()
            for _ in range(STEPS):
                guard.step(model(batch).square().mean())
            if number:  # the first round warms up
                times[on].append((time.perf_counter() - begun) / STEPS)
    begun = time.perf_counter()
    for number in range(MARKS):
        watched.at(Phase(number % 4), 1)
    mark = (time.perf_counter() - begun) / MARKS
    guard._progress = watched
    guard.close()
    if rank == 0:
        watching, off = statistics.median(times[True]), statistics.median(times[False])
        ratio = watching / off
        print(f"{ranks} ranks, {rounds} turns of {STEPS} steps each way")
        print(f"{'without':<28}{1e3 * off:>9.3f} ms/step   1.000x")
        print(f"{'with':<28}{1e3 * watching:>9.3f} ms/step   {ratio:.3f}x")
        print(f"{'the four marks of a step':<28}{4e6 * mark:>9.2f} us        {1 + 4 * mark / off:.5f}x")
        print(f"{'PASS ' if ratio <= PROMISE else 'SHORT'} {ratio:.3f}x, promised at most {PROMISE:.2f}x")
    dist.barrier()
    del model, guard, watched
    dist.destroy_process_group()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="watchdog_cost_") as folder:
        spawn(rank_of, (arguments.ranks, port, arguments.rounds, folder), nprocs=arguments.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
