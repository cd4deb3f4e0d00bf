"""Played on a stage under torchrun: an engine of DeepSpeed in two processes, with trouble on the second one only."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from rich.console import Console
from torch import Tensor, nn

from stayfinite.core.policy import Policy
from stayfinite.integrations.deepspeed import StayFinite, deepspeed_guard
from stayfinite.integrations.deepspeed.masters import inner_optimizer, tensors_of

STEPS, SAVED, KILLED = 30, 22, 25
NAN_LOSS, NAN_GRADIENT, SPIKE = 20, 23, 26
"""Steps, counted from 1, at which the second rank is bad."""
TOO_MANY = (20, 21, 22)
"""The same, where that leads to a rollback."""

# DeepSpeed asks oneDNN, which has fp16 on few CPUs; torch itself has it on all.
get_accelerator().is_fp16_supported = lambda: True


class SpoiltBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * math.nan


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor, factor: float = 1.0, spoil: bool = False) -> dict[str, Tensor]:
        out = self.second(torch.tanh(self.first(x)))
        out = SpoiltBackward.apply(out) if spoil else out
        return {"loss": (out.float() - x.float().sum(1, keepdim=True)).square().mean() * factor}


def config(kind: str) -> dict[str, Any]:
    """A kind is a ZeRO stage and a precision, and what else there is: ``2-bf16-offload``."""
    stage, precision, *more = kind.split("-")
    said: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0.0 if "unclipped" in more else 50.0,
        "zero_optimization": {"stage": int(stage)},
        "scheduler": {
            "type": "WarmupLR",
            "params": {"warmup_min_lr": 0.0, "warmup_max_lr": 0.01, "warmup_num_steps": 40},
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1000,
    }
    if "offload" in more:
        said["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    if "unchecked" in more:
        said["bf16"] = {"check_grad_overflow": False}
    if "wide" in more:
        said["data_types"] = {"grad_accum_dtype": "fp32"}
    if precision == "bf16":
        said["bf16"] = {"enabled": True, **said.get("bf16", {})}
    if precision == "fp16":
        # High enough that the scaler has to look for its scale first; or so low that a spike does not overflow.
        power = 4 if "low" in more else 18
        said["fp16"] = {"enabled": True, "initial_scale_power": power, "hysteresis": 1, "loss_scale_window": 12}
    return said


def engine_of(kind: str) -> Any:
    torch.manual_seed(0)
    model = Net()
    sort: Any = torch.optim.SGD if "sgd" in kind else torch.optim.AdamW
    optimizer = sort(model.parameters(), lr=0.01)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config(kind))[0]


def scale_of(engine: Any) -> float:
    if not engine.fp16_enabled():
        return 1.0
    owner = getattr(engine.optimizer, "loss_scale_config", engine.optimizer)
    return float(getattr(owner, "cur_scale", None) or engine.optimizer.loss_scale)


def state_of(engine: Any) -> dict[str, Any]:
    """All that a refused step must leave alone, on this rank, to the last bit."""
    inner = inner_optimizer(engine)
    assert inner is not None
    digest = hashlib.sha256()
    for name, tensor in tensors_of(engine, inner):
        digest.update(
            f"{name} {tensor.shape}".encode() + tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        )
    return {
        "tensors": digest.hexdigest(),
        "scale": scale_of(engine),
        "schedule": engine.lr_scheduler.state_dict()["last_batch_iteration"],
        "lr": engine.get_lr(),
    }


def weights_of(engine: Any) -> list[float]:
    with deepspeed.zero.GatheredParameters(
        list(engine.module.parameters()), enabled=engine.zero_optimization_stage() == 3
    ):
        return [
            number
            for parameter in engine.module.parameters()
            for number in parameter.detach().double().view(-1).tolist()
        ]


def batch(step: int, part: int, rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + 10 * part + rank)
    return torch.randn(4, 6, generator=generator)


def faults(step: int, rank: int, act: str) -> dict[str, Any]:
    if rank == 0 or act in ("plain", "good", "whole", "kill", "resume", "poison"):
        return {}
    if act == "rollback":
        return {"factor": math.nan} if step in TOO_MANY else {}
    return {
        NAN_LOSS: {"factor": math.nan} if "nan" in act else {},
        NAN_GRADIENT: {"spoil": True} if "nan" in act else {},
        SPIKE: {"factor": 100.0} if "spike" in act else {},
    }.get(step, {})


def main(place: str, kind: str, act: str) -> None:
    torch.set_num_threads(1)
    folder = Path(place)
    # Spikes must not overflow at the loss scale.
    engine = engine_of(f"{kind}-low" if "spike" in act else kind)
    rank = int(os.environ["RANK"])
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[kind.split("-")[1]]
    guard: StayFinite | None = None
    if "plain" not in act:
        policy = Policy(spikes="refuse" if "refuse" in act else "bound", desync_steps=5)
        if act == "rollback":
            policy = Policy(max_vetoes_in_a_row=2, max_cuts=0, prove_steps=3)
        guard = deepspeed_guard(engine, policy=policy, run_dir=folder / "run", console=Console(quiet=True))
    if act == "resume":
        engine.load_checkpoint(folder / "saved")
    states: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    last, rate = [], 0.0
    norms: list[tuple[float, float]] = []
    losses: list[float] = []
    moved = math.nan
    for step in range(engine.global_steps + 1, STEPS + 1):
        before, skipped = state_of(engine), engine.skipped_steps
        loss = torch.zeros(())
        for part in range(2):
            loss = engine(batch(step, part, rank).to(dtype), **faults(step, rank, act))["loss"]
            engine.backward(loss)
            engine.step()
        losses.append(float(loss.detach()))
        if "bound" in act and step == SPIKE:
            # Plain SGD moves the weights by rate times gradient.
            moved = math.dist(weights_of(engine), last) / rate
        last, rate = (weights_of(engine), engine.get_lr()[0]) if "bound" in act else ([], 0.0)
        if engine.skipped_steps != skipped:
            refused.append(
                {"step": step, "moved": [name for name, was in before.items() if state_of(engine)[name] != was]}
            )
        elif (
            guard is not None
            and (own := engine.get_global_grad_norm()) is not None
            and scale_of(engine) == before["scale"]
        ):
            # Without ZeRO its fp16 optimizer tells the norm before it divides by the scale.
            divided = before["scale"] if kind == "0-fp16" else 1.0
            norms.append((guard.figures()["stayfinite/grad_norm"], float(own) / divided))
        states.append(state_of(engine) if act == "rollback" else {})
        if act in ("kill", "whole") and step == SAVED:
            engine.save_checkpoint(folder / "saved", client_state={"mine": 7})
        if act == "kill" and step == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "poison" and step in (4, 5):
            if step == 5 and rank == 1:
                with torch.no_grad():
                    next(tensor for name, tensor in tensors_of(engine, inner_optimizer(engine)) if "exp_avg" in name)[
                        0
                    ] = math.nan
            engine.save_checkpoint(folder / "saved", tag=f"at-{step}")
        if act == "poison" and step == 5:
            break
    back = states[TOO_MANY[-1] - 1] if act == "rollback" else None
    seen = {
        "moved": moved,
        "gone_back_to": [step for step, state in enumerate(states[: TOO_MANY[0] - 1], 1) if state and state == back],
        "end": state_of(engine), "finite": bool(math.isfinite(losses[-1])), "losses": losses, "refused": refused,
        "skipped": engine.skipped_steps, "norms": norms, "optimizer": type(engine.optimizer).__name__,
        **({} if guard is None else _told(guard, engine)),
    }  # fmt: skip
    (folder / f"rank{rank}.json").write_text(json.dumps(seen))


def _told(guard: StayFinite, engine: Any) -> dict[str, Any]:
    clip = getattr(engine.optimizer, "clip_grad", None)
    memory = guard.state_dict()
    guard.close()
    return {
        "memory": memory,
        "decisions": {each.step: [each.action.value, each.code.value, each.limit, list(each.signals.bad_ranks)]
                      for each in guard.decisions if each.action.value not in ("accept", "clip")},
        "clip": clip,
        "vetoes": guard.vetoes,
        "left": [name for owner in (engine, engine.optimizer) for name, value in vars(owner).items() if _ours(value)],
    }  # fmt: skip


def _ours(method: Any) -> bool:
    return "stayfinite" in getattr(getattr(method, "__code__", None), "co_filename", "")


def read(folder: Path) -> list[Mapping[str, Any]]:
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
