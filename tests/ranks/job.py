"""Run under torchrun by the tests of several ranks: one training, one kind of trouble, one line of what was seen."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from stayfinite import Guard, Policy
from stayfinite.recipes.running.processes import leave_the_others
from stayfinite.state.shards import is_spread

STEPS = 12


class Silent:
    def print(self, line: Any) -> None:
        pass


class Rows(Dataset[torch.Tensor]):
    def __init__(self, length: int, corrupt: bool) -> None:
        self.length, self.corrupt = length, corrupt

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.corrupt and index >= 16:
            raise OSError(f"item {index} cannot be read")
        return torch.randn(6, generator=torch.Generator().manual_seed(index))


def build(kind: str) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    if kind.startswith("fsdp"):
        fully_shard(model[0])
        fully_shard(model)
    elif kind.startswith("ddp"):
        model = DistributedDataParallel(model)
    return model


def whole(model: nn.Module) -> list[list[float]]:
    tensors = [p.full_tensor() if is_spread(p) else p for p in model.parameters()]
    return [tensor.detach().double().reshape(-1).tolist() for tensor in tensors]


def main(kind: str, act: str, place: str | Path) -> None:
    folder = Path(place)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    model = build(kind)
    late = kind.endswith("-device")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=late)
    scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.7)
    harm = act == "harm"
    policy = Policy(
        gate="device" if late else "auto",
        max_vetoes_in_a_row=2,
        patience=1,
        max_cuts=0,
        prove_steps=3,
        desync_steps=2,
        max_loader_errors=2,
        sigmas=6 if harm else 20,
    )
    if harm:
        scheduler = None
    guard = Guard(model, optimizer, scheduler, policy=policy, run_dir=folder, console=Silent())
    first = guard.resume() if act == "resume" else 0
    length = 600 if harm else 48 if act != "uneven" or rank else 32
    loader = DataLoader(Rows(length, corrupt=act == "loader" and rank == 1), batch_size=4)
    steps = first
    for number, x in enumerate(guard.batches(loader), first):
        loss = (model(x)[:, 0] - x[:, 0]).square().mean() if harm else model(x).square().mean()
        if harm:
            optimizer.param_groups[0]["lr"] = 3.0 if number in (90, 91, 92) else 0.03
        here = rank == 1
        if act == "nan-loss" and here and number == 5:
            loss = loss * torch.nan
        if act == "spike" and here and number == 9:
            loss = loss * 1e6
        if act.startswith("rollback") and here and number in (8, 9, 10):
            loss = loss * torch.nan
        if act == "rollback-misfit" and here and number == 10:
            # What was kept of the training no longer fits it, on this rank.
            getattr(model, "module", model).register_buffer("late", torch.zeros(1))
        if act == "nan-gradient" and here and number == 5:
            loss.register_hook(lambda grad: grad * torch.nan)
        guard.step(loss)
        steps += 1
        if act == "desync" and here and number == 5:
            with torch.no_grad():
                next(model.parameters()).add_(1e-3)
        if act == "save" and steps == 6:
            guard.checkpoint()
    guard.close()
    seen = {
        "rank": rank,
        "first": first,
        "steps": steps,
        "actions": [decision.action for decision in guard.decisions],
        "bad_ranks": [list(decision.signals.bad_ranks) for decision in guard.decisions],
        "norms": [decision.signals.grad_norm for decision in guard.decisions],
        "weights": whole(model),
        "lr": optimizer.param_groups[0]["lr"],
        "describe": guard.describe(),
    }
    (folder / f"seen-{act}-{rank}.json").write_text(json.dumps(seen))
    if dist.is_initialized():
        dist.barrier()
        leave_the_others()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
