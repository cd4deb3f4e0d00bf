"""Played on a stage by test_sharded: trains, saves or resumes, and writes down what became of it."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from stayfinite.recipes.running.processes import leave_the_others
from stayfinite.state.checkpoints import Checkpointer
from stayfinite.state.parts import TrainingParts
from stayfinite.state.reading import load, newest_good
from stayfinite.state.sharded import agree_on_token
from stayfinite.state.shards import is_spread
from stayfinite.state.snapshots import SnapshotRing
from stayfinite.state.training import capture, restore


def build(kind: str) -> TrainingParts:
    torch.manual_seed(0)
    # 5 rows over 2 ranks: parts of different size; 1 row: a rank without any.
    model: nn.Module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))
    if kind == "fsdp":
        fully_shard(model[0])
        fully_shard(model)
    elif kind == "ddp":
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, foreach=False)
    return TrainingParts(model=model, optimizer=optimizer, scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7))


def train(parts: TrainingParts, first: int, last: int) -> None:
    for step in range(first, last + 1):
        # The same batch on every rank, so that any number of them takes the same steps.
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
        parts.model(x).pow(2).mean().backward()
        parts.optimizer.step()
        parts.optimizer.zero_grad()
        parts.scheduler.step()


def whole(parts: TrainingParts) -> dict[str, torch.Tensor]:
    tensors = dict(parts.parameters() | parts.buffers())
    tensors |= {
        f"{name}.{key}": value
        for name, p in parts.parameters().items()
        for key, value in parts.optimizer.state[p].items()
    }
    return {n: t.full_tensor().detach() if is_spread(t) else t.detach().clone() for n, t in tensors.items()}


def main(kind: str, act: str, place: str) -> None:
    folder = Path(place)
    folder.mkdir(exist_ok=True)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = build(kind)
    saver = Checkpointer(folder / "checkpoints", rank=rank, ranks=ranks, token=agree_on_token(), patience=30)
    if act == "save":
        train(parts, 1, 3)
        saver.save(3, capture(parts, notes={"rank": rank}))
        train(parts, 4, 6)
        (outcome,) = saver.wait()
        assert outcome.error is None, outcome
        if rank == 1:
            # One bad part on one rank: no rank may call the whole good.
            with torch.no_grad():
                p = next(iter(parts.parameters().values()))
                (p.to_local() if is_spread(p) else p).view(-1)[:1].fill_(torch.nan)
        state = capture(parts)
        if ranks > 1:
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                saver.save(6, state)
                assert saver.wait()[-1].error is not None
            restore(parts, load(newest_good(folder / "checkpoints").path, parts=parts, rank=rank))
            train(parts, 4, 6)
    else:
        path, _ = newest_good(folder / "checkpoints")
        state = load(path, parts=parts, rank=rank)
        restore(parts, state)
        ring = SnapshotRing(parts, prove_steps=1)
        ring.take(3)
        train(parts, 4, 5)
        ring.accepted(4)
        ring.rollback_to(ring.known_good())
        train(parts, 4, 6)
    result = whole(parts)
    if rank == 0:
        torch.save(result, folder / f"{act}.pt")
    dist.barrier()
    leave_the_others()
