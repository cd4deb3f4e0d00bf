"""Run under `stayfinite run` and torchrun: a guarded training that is stopped, or loses a rank the first time."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from stayfinite import Guard, Policy
from stayfinite.recipes.running.processes import leave_the_others


def main(act: str, place: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    policy = Policy(max_vetoes_in_a_row=1, max_cuts=0, max_rollbacks=0, checkpoint_steps=2, report=False)
    guard = Guard(model, torch.optim.SGD(model.parameters(), lr=0.01), policy=policy, run_dir=place)
    first = guard.resume()
    with Path(place, f"attempts-{dist.get_rank()}").open("a") as log:
        log.write(f"{first}\n")
    for step in range(first, 8):
        loss = model(torch.ones(2, 4)).square().mean()
        if act == "stop" and step >= 3:
            loss = loss * torch.nan
        guard.step(loss)
        guard.flush()
        if act == "lose" and step == 5 and first == 0 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    guard.close()
    leave_the_others()


if __name__ == "__main__":
    main(*sys.argv[1:])
