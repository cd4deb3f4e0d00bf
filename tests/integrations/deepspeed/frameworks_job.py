"""Played on a stage under torchrun: engines that accelerate or the Trainer build, and one guarded from outside."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin
from rich.console import Console

from integrations.deepspeed.engine_job import Net, batch
from integrations.transformers.rank_job import BadOnTheLastRank
from stayfinite.core.policy import Policy
from stayfinite.integrations.accelerate import accelerate_guard
from stayfinite.integrations.attaching import attached
from stayfinite.integrations.transformers import StayFinite
from tiny_trainers import Sentences, arguments, tiny_t5

BAD = 7


def config(stage: int, **more: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 50.0,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        **more,
    }


def main(place: str, kind: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder, rank, (act, stage, *how) = Path(place), int(os.environ["RANK"]), kind.split("-")
    found = {"accelerate": _accelerate, "trainer": _trainer, "attached": _attached}[act](folder, rank, int(stage), how)
    (folder / f"rank{rank}.json").write_text(json.dumps(found))


def _accelerate(folder: Path, rank: int, stage: int, how: list[str]) -> dict[str, Any]:
    plugin = DeepSpeedPlugin(hf_ds_config=config(stage))
    accelerator = Accelerator(deepspeed_plugin=plugin, project_dir=folder)
    model: Any = Net()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.9)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    if "plain" not in how:
        accelerate_guard(accelerator, model, optimizer, scheduler, console=Console(quiet=True))
    skipped, losses = [], []
    for step in range(1, 13):
        factor = math.nan if step == BAD and rank == 1 and "good" not in how else 1.0
        loss = model(batch(step, 0, rank), factor)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if accelerator.optimizer_step_was_skipped:
            skipped.append(step)
    accelerator.end_training()
    return {"skipped": skipped, "losses": losses, "lr": model.get_lr(), "counted": model.skipped_steps}


def _trainer(folder: Path, rank: int, stage: int, how: list[str]) -> dict[str, Any]:
    said = config(stage)
    said.pop("train_micro_batch_size_per_gpu")
    settings = {
        "max_steps": 12,
        "per_device_train_batch_size": 4,
        "train_sampling_strategy": "sequential",
        "logging_steps": 4,
    }
    args = arguments(
        folder, **settings, deepspeed=said | {"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto"}
    )
    callbacks = [] if "plain" in how else [StayFinite(Policy(desync_steps=3))]
    model = tiny_t5(dropout_rate=0.0)
    trainer = BadOnTheLastRank(model=model, args=args, train_dataset=Sentences(), callbacks=callbacks)
    trainer.bad = "good" not in how
    trainer.train()
    return {
        "skipped": trainer.deepspeed.skipped_steps,
        "losses": [each["loss"] for each in trainer.state.log_history if "loss" in each],
        "vetoes": trainer.state.log_history[-1].get("stayfinite/vetoes"),
        "left": [name for name in ("training_step", "log", "_stayfinite") if name in vars(trainer)],
        "weights": [float(p.detach().double().abs().sum()) for p in model.parameters()],
    }


def _attached(folder: Path, rank: int, stage: int, how: list[str]) -> dict[str, Any]:
    os.chdir(folder)
    said: list[str] = []
    losses = []
    with attached(Policy(), said.append) as found:
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config(stage))[0]
        for step in range(1, 13):
            loss = engine(batch(step, 0, rank), math.nan if step == BAD and rank == 1 else 1.0)["loss"]
            engine.backward(loss)
            engine.step()
            losses.append(float(loss.detach()))
    return {
        "said": said, "losses": losses, "skipped": engine.skipped_steps, "guards": len(found.guards),
        "left": "_stayfinite" in vars(engine), "run": (folder / "stayfinite" / "steps.jsonl").exists(),
    }  # fmt: skip
