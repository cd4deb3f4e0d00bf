"""Played on a stage under torchrun: an engine that Lightning's Trainer builds."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DeepSpeedStrategy
from rich.console import Console
from torch import Tensor

from integrations.deepspeed.engine_job import Net, batch
from integrations.deepspeed.frameworks_job import BAD, config
from stayfinite.integrations.lightning import StayFinite


class OnTheCpu(DeepSpeedStrategy):
    """Lightning asks for CUDA and a number of the device, which DeepSpeed itself does not."""

    root_device = torch.device("cpu", 0)

    def setup_environment(self) -> None:
        self.accelerator.setup_device(self.root_device)
        self.set_world_ranks()
        self._init_deepspeed_distributed()


class Module(pl.LightningModule):
    """The last rank's loss is NaN in one batch."""

    def __init__(self, bad: int) -> None:
        super().__init__()
        self.net, self.bad = Net(), bad
        self.losses: list[float] = []
        self.rates: list[float] = []

    def training_step(self, number: Tensor, _: int) -> Tensor:
        step = int(number)
        factor = math.nan if step == self.bad and self.global_rank == 1 else 1.0
        loss: Tensor = self.net(batch(step, 0, self.global_rank), factor)["loss"]
        self.losses.append(float(loss.detach()))
        return loss

    def on_train_batch_start(self, *_: Any) -> None:
        self.rates.append(self.trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9), "interval": "step"}]


def main(place: str, kind: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = Path(place)
    found = train(folder, kind.split("-"))
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(found))


def _said(how: list[str]) -> dict[str, Any]:
    # Lightning's Trainer gives the other two.
    given = ("gradient_accumulation_steps", "gradient_clipping")
    return {name: value for name, value in config(3 if "3" in how else 2).items() if name not in given}


def train(folder: Path, how: list[str]) -> dict[str, Any]:
    callback = StayFinite(run_dir=folder / "stayfinite", console=Console(quiet=True))
    module = Module(0 if "good" in how else BAD)
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy=OnTheCpu(config=_said(how)), max_epochs=1, logger=False,
        callbacks=[] if "plain" in how else [callback], enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accumulate_grad_batches=2 if "accumulated" in how else 1,
        gradient_clip_val=50.0, use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(range(1, 13)))
    engine: Any = trainer.strategy.model
    return {
        "losses": module.losses, "rates": module.rates, "skipped": engine.skipped_steps,
        "left": [name for name in ("step", "backward", "_stayfinite") if name in vars(engine)],
        "vetoes": float(trainer.callback_metrics.get("stayfinite/vetoes", -1)),
    }  # fmt: skip
