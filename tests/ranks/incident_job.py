"""Played on a stage, on two ranks: a bad row on the last rank, its forward pass known to the guard."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from stayfinite import Guard, Policy
from stayfinite.recipes.running.processes import leave_the_others
from stayfinite.state.shards import is_spread


class Silent:
    def print(self, line: object) -> None:
        pass


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.1), nn.Tanh(), nn.Linear(5, 1))


def main(kind: str, place: str, most: str) -> None:
    folder = Path(place)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model: nn.Module = network()
    if kind == "fsdp":
        fully_shard(model[0])
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)

    def forward(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        if kind == "talking":
            total = loss.detach().clone()
            dist.all_reduce(total)
        return loss

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    policy = Policy(max_incidents=int(most), prove_steps=2)
    torch.manual_seed(rank)
    with Guard(model, optimizer, policy=policy, run_dir=folder, forward=forward, console=Silent()) as guard:
        for number in range(8):
            x = torch.randn(4, 6)
            if number == 5 and rank == dist.get_world_size() - 1:
                x[2] = torch.nan
            guard.step(guard.forward(x))
        actions = [decision.action for decision in guard.decisions]
    weights = [(p.full_tensor() if is_spread(p) else p).detach().reshape(-1).tolist() for p in model.parameters()]
    seen = {"actions": actions, "weights": weights, "rng": torch.get_rng_state().tolist()}
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen))
    dist.barrier()
    leave_the_others()
