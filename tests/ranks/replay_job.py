"""Played on a stage, on two ranks: a step is run again on each, and the last rank's device may err."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from stayfinite import DeviceFault, Guard, Policy
from stayfinite.recipes.running.processes import leave_the_others
from stayfinite.state.shards import is_spread


class Silent:
    def print(self, line: object) -> None:
        pass


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Tanh(), nn.Linear(4, 1))


def main(kind: str, fault: str, place: str, every: str) -> None:
    folder = Path(place)
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    model: nn.Module = network()
    if kind in ("fsdp", "hsdp"):
        shape, names = ((2,), ("data",)) if kind == "fsdp" else ((2, 1), ("replicas", "data"))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif kind == "tensor":
        parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(output_layouts=Replicate())})
    else:
        model = DistributedDataParallel(model)
    calls: list[int] = []

    def errs(step: int) -> bool:
        """Whether the device of this rank errs now: once, in the step itself, or from then on."""
        calls.append(step)
        everywhere = fault == "everywhere" and step >= 10
        once = fault == "once" and step == 10 and calls.count(10) == 1
        return everywhere or (rank == last and (once or (fault == "always" and step >= 10)))

    def forward(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        if kind == "talking":
            total = loss.detach().clone()
            dist.all_reduce(total)
        # A fault of the backward pass: the loss is right, this rank's own gradients are not.
        return loss * 1.0 if not errs(present) else loss + len(calls) * 1e-3 * (loss - loss.detach())

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    policy = Policy(replay_every=int(every), prove_steps=2, autopsy_seconds=0)
    torch.manual_seed(0 if kind == "tensor" else rank)
    present, stop = 0, ""
    guard = Guard(model, optimizer, policy=policy, run_dir=folder, forward=forward, console=Silent())
    try:
        for present in range(1, 19):  # noqa: B007 - the forward pass looks at it
            halves = torch.randn(2, 4, 6)
            with model.no_sync() if isinstance(model, DistributedDataParallel) else torch.enable_grad():
                guard.backward(guard.forward(halves[0]) / 2)
            guard.step(guard.forward(halves[1]) / 2)
    except DeviceFault as error:
        stop = error.message
    guard.close()
    actions = [decision.action for decision in guard.decisions]
    weights = [(p.full_tensor() if is_spread(p) else p).detach().reshape(-1).tolist() for p in model.parameters()]
    seen = {"actions": actions, "weights": weights, "rng": torch.get_rng_state().tolist(), "stop": stop}
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen))
    dist.barrier()
    leave_the_others()
