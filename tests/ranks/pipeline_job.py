"""Run under torchrun by the tests of pipelines: stages on different ranks, and the same model in one piece."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.nn.parallel import DistributedDataParallel

from stayfinite import Guard, Policy
from stayfinite.recipes.running.processes import leave_the_others
from stayfinite.state.shards import full_value

STEPS, ROWS, PARTS = 8, 32, 4
BAD = 5


class Silent:
    def print(self, line: Any) -> None:
        pass


class First(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.embed(ids)
        return found


class Last(nn.Module):
    """Its head is the embedding once more."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 11, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        found: Tensor = self.head(self.norm(rows))
        return found


class Counted(nn.Module):
    """Counts its forward passes in a buffer. torch's BatchNorm would do, had it not seen uninitialized memory while the
    schedule finds out shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 6)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, rows: Tensor) -> Tensor:
        self.calls += 1
        found: Tensor = self.line(rows).tanh()
        return found


def pieces() -> list[nn.Module]:
    """Four stages with 1, 4, 2 and 3 parameters."""
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6))
    found = [First(), wide, Counted(), Last()]
    found[3].head.weight.data.copy_(found[0].embed.weight.data)
    return found


def loss_of(scores: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scores, target)


def batch(number: int, replica: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(100 * number + replica)
    return torch.randint(0, 11, (ROWS,)), torch.randint(0, 11, (ROWS,))


class Piped:
    """One training: the stages of this rank, its guard or none."""

    def __init__(self, kind: str, folder: Path, act: str) -> None:
        world = dist.get_world_size()
        ranks = 4 if kind == "four" else 2
        mesh = init_device_mesh("cpu", (world // ranks, ranks), mesh_dim_names=("dp", "pp"))
        self.group, self.replica = mesh.get_group("pp"), mesh.get_local_rank("dp")
        self.replicas, here = world // ranks, mesh.get_local_rank("pp")
        self.pieces = copy.deepcopy(pieces())
        if kind in ("gpipe", "1f1b", "ddp", "fsdp"):
            modules = [nn.Sequential(*self.pieces[:1]), nn.Sequential(*self.pieces[1:])]
            held = {here: modules[here]}
        else:
            modules = self.pieces
            held = {index: modules[index] for index in range(here, 4, ranks)}
        number = len(modules)
        for index, module in held.items():
            if kind == "fsdp":
                fully_shard(module, mesh=mesh["dp"])
            elif kind == "ddp":
                held[index] = DistributedDataParallel(module, process_group=mesh.get_group("dp"))
        self.parameters = [p for module in held.values() for p in module.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=0.01)
        self.schedule_of_rate = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.7)
        stages = [PipelineStage(held[at], at, number, torch.device("cpu"), group=self.group) for at in held]
        self.first, self.last = 0 in held, number - 1 in held
        self.held = held
        kinds: dict[str, Any] = {"gpipe": ScheduleGPipe, "interleaved": ScheduleInterleaved1F1B}
        schedule = kinds.get(kind, Schedule1F1B)
        self.schedule = schedule(stages if schedule is ScheduleInterleaved1F1B else stages[0], PARTS, loss_fn=self.loss)
        self.number, self.act = 0, act
        self.tied = self._tied(mesh.get_group("pp") if kind == "four" else None)
        self.guard: Guard | None = None
        if act != "bare":
            policy = Policy(desync_steps=2, max_vetoes_in_a_row=2, patience=1, max_cuts=0, prove_steps=2)
            given = stages[0] if len(stages) == 1 else stages
            self.guard = Guard(
                given, self.optimizer, self.schedule_of_rate, policy=policy, run_dir=folder, tied=self.tied or None,
                max_norm=1e3, console=Silent(),
            )  # fmt: skip

    def _tied(self, group: Any) -> dict[str, nn.Parameter]:
        """The embedding and the head, which only the kind ``four`` keeps alike."""
        self.both = None
        if group is None:
            return {}
        everyone = dist.get_process_group_ranks(group)
        self.both = dist.new_group([everyone[0], everyone[-1]])
        if self.first:
            return {"embedding": self.pieces[0].embed.weight}
        return {"embedding": self.pieces[3].head.weight} if self.last else {}

    def loss(self, scores: Tensor, target: Tensor) -> Tensor:
        loss = loss_of(scores, target)
        return loss * torch.nan if self.act == "nan-loss" and self.number == BAD else loss

    def step(self) -> float:
        ids, target = batch(self.number, self.replica)
        losses: list[Tensor] = []
        self.schedule.step(*([ids] if self.first else []), target=target if self.last else None, losses=losses)
        for weight in self.tied.values():
            dist.all_reduce(weight.grad, group=self.both)
        if self.act == "nan-gradient" and self.number == BAD and self.first:
            self.parameters[0].grad.mul_(torch.nan)
        if self.act == "spike" and self.number >= BAD and self.last:
            losses = [loss + math.inf for loss in losses]
        if self.guard is None:
            self.optimizer.step()
            self.schedule_of_rate.step()
            self.optimizer.zero_grad()
        else:
            self.guard.step(losses)
        self.number += 1
        return float(torch.stack(losses).mean()) if losses else math.nan

    def state(self) -> dict[str, Any]:
        moments = [self.optimizer.state[p] for p in self.parameters if p in self.optimizer.state]
        return {
            "weights": [full_value(p).double().reshape(-1).tolist() for p in self.parameters],
            "moments": [full_value(each["exp_avg"]).double().reshape(-1).tolist() for each in moments],
            "buffers": [b.double().reshape(-1).tolist() for module in self.held.values() for b in module.buffers()],
            "lr": self.optimizer.param_groups[0]["lr"],
        }


def whole_norms(kind: str, replicas: int) -> list[float]:
    """The norm of each step of the same training in one process."""
    modules = pieces()
    model = nn.Sequential(*modules)
    if kind == "four":
        modules[3].head.weight = modules[0].embed.weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.7)
    norms = []
    for number in range(STEPS):
        for replica in range(replicas):
            ids, target = batch(number, replica)
            for rows, wanted in zip(ids.chunk(PARTS), target.chunk(PARTS), strict=True):
                (loss_of(model(rows), wanted) / PARTS / replicas).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), math.inf)))
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
    return norms


def trained(kind: str, act: str, folder: Path) -> dict[str, Any]:
    piped = Piped(kind, folder, act)
    states: list[dict[str, Any]] = []
    first = 0
    if act == "resume":
        assert piped.guard is not None
        first = piped.number = piped.guard.resume()
    for number in range(first, STEPS):
        if number == BAD:
            states.append(piped.state())
        piped.step()
        if number == BAD:
            states.append(piped.state())
        if act == "desync" and number == 3 and dist.get_rank() == dist.get_world_size() - 1:
            with torch.no_grad():
                piped.parameters[0].add_(1e-3)
        if act == "save" and number == 3:
            assert piped.guard is not None
            piped.guard.checkpoint()
    seen: dict[str, Any] = {"state": piped.state(), "around": states, "first": first}
    if piped.guard is not None:
        piped.guard.close()
        decisions = piped.guard.decisions
        seen |= {
            "norms": [decision.signals.grad_norm for decision in decisions],
            "losses": [decision.signals.loss for decision in decisions],
            "actions": [decision.action for decision in decisions],
            "bad_ranks": [list(decision.signals.bad_ranks) for decision in decisions],
            "bad_parameters": [list(decision.signals.bad_parameters) for decision in decisions],
            "describe": piped.guard.describe(),
        }
    if dist.get_rank() == 0 and act == "healthy":
        seen["whole"] = whole_norms(kind, piped.replicas)
    return seen


def main(kind: str, act: str, place: str | Path) -> None:
    dist.init_process_group("gloo")
    folder = Path(place)
    found = trained(kind, act, folder)
    (folder / f"seen-{act}-{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    leave_the_others()
