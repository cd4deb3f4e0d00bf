"""Two workers of ray's TorchTrainer, each with a Guard in its loop: ``ray_job.py FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn

from stayfinite import Guard


def work(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = prepare_model(nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rank = ray.train.get_context().get_world_rank()
    with Guard(model, optimizer, run_dir=Path(config["folder"], "run")) as guard:
        for number in range(6):
            loss = model(torch.ones(2, 4)).square().mean()
            guard.step(loss * torch.nan if number == 3 and rank == 1 else loss)
    actions = [decision.action for decision in guard.decisions]
    Path(config["folder"], f"seen-{rank}.json").write_text(json.dumps(actions))


if __name__ == "__main__":
    folder = sys.argv[1]
    # The trainer itself takes one.
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    TorchTrainer(
        work,
        train_loop_config={"folder": folder},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=folder),
    ).fit()
