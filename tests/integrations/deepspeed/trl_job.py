"""Played on a stage under torchrun: trainers of trl on an engine, with a reference that is none, and a runaway."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
from transformers import set_seed

from integrations.deepspeed.frameworks_job import config
from stayfinite.integrations.transformers import StayFinite
from tiny_trl import trl_trainer


def by_chance(completions: list[str], **_: Any) -> list[float]:
    """Rewards that nothing earns, the same in every run."""
    return [zlib.crc32(text.encode()) % 97 / 97 for text in completions]


RUNAWAY: dict[str, Any] = {
    "max_steps": 50, "learning_rate": 0.05, "beta": 0.001, "per_device_train_batch_size": 16,
    "reward_funcs": [by_chance],
}  # fmt: skip


def main(place: str, kind: str) -> None:
    """Train; ``kind`` is `2-plain`, `2-good`, `2-itself`, `2-runaway`, with the stage of ZeRO in front."""
    torch.set_num_threads(1)
    folder, (stage, way) = Path(place), kind.split("-")
    said = config(int(stage)) | {"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto"}
    settings: dict[str, Any] = {"deepspeed": said, "max_steps": 6}
    if way == "runaway":
        settings |= RUNAWAY
    callbacks = [] if way == "plain" else [StayFinite(steer=True)]
    trainer = trl_trainer("grpo", folder, *callbacks, **settings)
    if way == "itself":
        trainer.ref_model = trainer.model
    set_seed(11)
    trainer.train()
    found = {
        "beta": trainer.beta,
        "weights": [float(p.detach().double().abs().sum()) for p in trainer.model.parameters()],
    }
    (folder / f"rank{trainer.args.process_index}.json").write_text(json.dumps(found))
