"""Run under torchrun by the tests of the watchdog: one rank does not arrive, or only looks as if it did not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ranks.job import Silent
from stayfinite import Guard, Policy
from stayfinite.recipes.running.processes import leave_the_others

FLOOR, LONG, STEPS, ODD = 3.0, 10.0, 12, 8


def stuck_loader() -> None:
    time.sleep(LONG)


def be_stopped() -> None:
    again = f"import os, signal, time; time.sleep({LONG}); os.kill({os.getpid()}, signal.SIGCONT)"
    subprocess.Popen([sys.executable, "-c", again])
    os.kill(os.getpid(), signal.SIGSTOP)


def evaluate() -> None:
    until, total = time.monotonic() + LONG, 0.0
    while time.monotonic() < until:
        total += float(torch.randn(20, 20).square().sum())


def main(kind: str, act: str, place: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Linear(4, 1)
    if kind == "ddp":
        model = DistributedDataParallel(model)
    policy = Policy(stall_seconds=FLOOR, report=False)
    guard = Guard(model, torch.optim.SGD(model.parameters(), lr=0.01), policy=policy, run_dir=place, console=Silent())
    for step in range(1, (105 if act == "slow" else STEPS) + 1):
        if act == "slow" and rank == 1:
            time.sleep(0.02)
        if step == ODD and rank == 1 and act == "hang":
            stuck_loader()
        if step == ODD and rank == 1 and act == "stopped":
            be_stopped()
        if act == "first" and step == 1 and rank == 1:
            stuck_loader()
        if step == ODD and rank == 0 and act == "evaluate":
            evaluate()
        if step == ODD and act == "save":
            stuck_loader()  # all of them, as a checkpoint that everybody writes
        guard.step(model(torch.ones(2, 4)).square().mean())
    guard.close()
    if rank == 0:
        Path(place, "weights").write_text(repr([p.tolist() for p in model.parameters()]))
    dist.barrier()
    leave_the_others()


if __name__ == "__main__":
    main(*sys.argv[1:])
