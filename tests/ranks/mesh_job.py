"""Run under torchrun by the tests of meshes: gradients spread in random ways, measured by the guard and as a whole."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

from stayfinite import Guard, Policy
from stayfinite.recipes.running.processes import leave_the_others


class Silent:
    def print(self, line: Any) -> None:
        pass


class Block(nn.Module):
    """A head of 5 rows is shared unevenly among 2 and 4 ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 28), nn.Linear(28, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, rows: Tensor) -> Tensor:
        found: Tensor = self.head(self.down(self.up(self.norm(rows)).relu()))
        return found


class Experts(nn.Module):
    """Six experts and a router, without which no token reaches them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 6)
        self.experts = nn.Parameter(torch.randn(6, 8, 5))

    def forward(self, rows: Tensor) -> Tensor:
        shares = self.router(rows).softmax(-1)
        if not isinstance(self.experts, DTensor):
            return torch.einsum("be,bd,edo->bo", shares, rows, self.experts)
        mesh = self.experts.device_mesh
        everywhere = [DTensor.from_local(each, mesh, [Replicate()]) for each in (shares, rows)]
        found = torch.einsum("be,bd,edo->bo", *everywhere, self.experts)
        return found.full_tensor()


def build(kind: str = "") -> nn.Module:
    torch.manual_seed(0)
    return Experts() if kind == "expert" else Block()


PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def spread(kind: str) -> nn.Module:
    model = build(kind)
    if kind == "hsdp":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
        fully_shard(model, mesh=mesh)
    elif kind == "tp":
        parallelize_module(model, init_device_mesh("cpu", (4,), mesh_dim_names=("tp",)), PLAN)
    elif kind == "fsdp-tp":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], PLAN)
        fully_shard(model, mesh=mesh["dp"])
    elif kind == "loss-of-dtensor":
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
        parallelize_module(model, mesh, {**PLAN, "head": ColwiseParallel(use_local_output=False)})
    elif kind == "expert":
        experts = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "ep"))["ep"]
        model.experts = nn.Parameter(distribute_tensor(model.experts.data, experts, [Shard(0)]))
    elif kind == "context":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
        fully_shard(model, mesh=mesh["dp", "cp"]._flatten("dp_cp"))
    elif kind == "sequence":
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
        from torch.distributed.tensor.parallel import PrepareModuleInput

        plan = {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(),
        }
        parallelize_module(model, mesh, plan)
        parallelize_module(
            model, mesh, {"norm": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1))}
        )
    return model


def trained(kind: str) -> dict[str, Any]:
    """The norm of each of some steps, by the guard, and the same of the model in one piece."""
    torch.manual_seed(7)
    rows = torch.randn(3, 4, 8)
    rows = torch.randn(3, 2, 4, 8) if kind == "sequence" else rows
    found: dict[str, Any] = {}
    for name, model in (("spread", spread(kind)), ("whole", build(kind))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        norms = []
        guard = watching(model, optimizer) if name == "spread" else None
        for batch in rows:
            # Of each sequence a rank sees its own stretch.
            own = batch.chunk(4)[dist.get_rank()] if kind == "context" and guard is not None else batch
            loss = model(own).square().mean()
            found["kind of loss"] = found.get("kind of loss", type(loss).__name__)
            if guard is not None:
                guard.step(loss)
                continue
            loss.backward()
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), math.inf)))
            optimizer.step()
            optimizer.zero_grad()
        if guard is not None:
            guard.close()
            norms = norms_of(guard)
        found[name] = norms
    return found


def watching(model: nn.Module, optimizer: torch.optim.Optimizer) -> Guard:
    return Guard(model, optimizer, max_norm=None, policy=Policy.watch(), console=Silent())


def norms_of(guard: Guard) -> list[float]:
    return [float(decision.signals.grad_norm) for decision in guard.decisions]


def placed_at_random(chance: random.Random, mesh: DeviceMesh, dimensions: int) -> list[Placement]:
    choices: list[Placement] = [Replicate(), *(Shard(axis) for axis in range(dimensions))]
    placed = [chance.choice(choices) for _ in range(mesh.ndim)]
    # Two dimensions of a mesh may share an axis only in their order; one at a time is enough here.
    for at, placement in enumerate(placed):
        if isinstance(placement, Shard) and placement in placed[:at]:
            placed[at] = Replicate()
    return placed


def measured_at_random(seed: int) -> tuple[float, float]:
    """The norm by the guard, and that of the full tensors, for parameters placed at random on meshes of all kinds."""
    chance = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    mesh = chance.choice(MESHES)
    model, whole = nn.Module(), []
    for number in range(chance.randint(1, 4)):
        shape = [chance.randint(1, 7) for _ in range(chance.randint(1, 3))]
        weight, grad = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
        whole.append(grad)
        if chance.random() < 0.25:
            parameter = nn.Parameter(weight)
            parameter.grad = grad
        else:
            placed = placed_at_random(chance, mesh, len(shape))
            parameter = nn.Parameter(distribute_tensor(weight, mesh, placed))
            part = distribute_tensor(grad, mesh, placed)
            summands = [at for at, placement in enumerate(placed) if placement.is_replicate()]
            if summands and chance.random() < 0.5:
                at = chance.choice(summands)
                partial = [Partial() if each == at else placement for each, placement in enumerate(placed)]
                local = part.to_local() / mesh.size(at)
                part = DTensor.from_local(local, mesh, partial, shape=part.shape, stride=part.stride())
            parameter.grad = part
        model.register_parameter(f"p{number}", parameter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    guard = watching(model, optimizer)
    kept = {parameter: parameter.grad for parameter in model.parameters()}
    for parameter in kept:
        parameter.grad = None
    anchor = next(model.parameters())
    loss = anchor.to_local().sum() * 0 if isinstance(anchor, DTensor) else anchor.sum() * 0
    guard.backward(loss)
    for parameter, grad in kept.items():
        parameter.grad = grad
    guard.step()
    guard.close()
    return norms_of(guard)[0], float(torch.stack([grad.norm() for grad in whole]).norm())


MESHES: list[DeviceMesh] = []


def main(kind: str, place: str | Path) -> None:
    dist.init_process_group("gloo")
    if kind == "random":
        if not MESHES:
            MESHES.extend([init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))])
        found: Any = [measured_at_random(seed) for seed in range(40)]
    else:
        found = trained(kind)
    Path(place, f"{kind}-{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    leave_the_others()
