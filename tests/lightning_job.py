"""A Lightning training in processes of its own, run by tests as ``lightning_job.py FOLDER kill|bad|plain|fabric``."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric import Fabric
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_training import NAN, Net, Regression, build, guarded, loader, trainer
from stayfinite.integrations.lightning import fabric_guard
from tiny_training import Lines

LAST = "saved/last.ckpt"


class Kill(pl.Callback):
    """Ends the process by SIGKILL after so many steps."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.after:
            os.kill(os.getpid(), signal.SIGKILL)


def resumable(folder: Path, kill_after: int = 0) -> pl.LightningModule:
    """Three epochs, with a bad batch in each; from the last checkpoint if there is one."""
    module = build(Regression, "nan-batch")
    # Lightning's checkpoints do not hold the state of the generators, which dropout draws from.
    module.net.drop.p = 0.0
    saving = ModelCheckpoint(folder / "saved", save_last=True, every_n_epochs=1, save_on_train_epoch_end=True)
    callbacks = [guarded(folder), saving, *([Kill(kill_after)] if kill_after else [])]
    runner = trainer(folder, callbacks, max_epochs=3, enable_checkpointing=True)
    runner.fit(module, loader((7,)), ckpt_path=folder / LAST if (folder / LAST).exists() else None)
    return module


class OneBadRank(Regression):
    """The second rank has a bad batch."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.global_rank == 1 and batch_idx == 7 and self.fault:
            batch[0][3, 2] = NAN
        return super().training_step(batch, batch_idx)


def several_ranks(folder: Path, fault: str) -> None:
    module = build(OneBadRank, fault)
    callback = guarded(folder)
    runner = trainer(folder, [] if fault == "plain" else [callback], strategy="ddp", devices=2)
    runner.fit(module, loader())
    seen = {
        "weights": {name: value.reshape(-1).tolist() for name, value in module.state_dict().items()},
        "position": runner.lr_scheduler_configs[0].scheduler.last_epoch,
        "refused": [each.step for guard in callback.guards for each in guard.decisions if each.refused],
        "vetoes": float(runner.callback_metrics.get("stayfinite/vetoes", -1)),
    }
    (folder / f"seen-{runner.global_rank}.json").write_text(json.dumps(seen))


def several_ranks_with_fabric(folder: Path) -> None:
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    torch.manual_seed(0)
    net = Net()
    model, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=0.02))
    guard = fabric_guard(
        fabric, model, optimizer, run_dir=folder / "run", console=Lines(),
        forward=lambda batch: (model(batch[0]) - batch[1]).square().mean(),
    )  # fmt: skip
    refused = []
    for number, batch in enumerate(fabric.setup_dataloaders(loader())):
        if fabric.global_rank == 1 and number == 7:
            batch[0][3, 2] = NAN
        fabric.backward(guard.forward(batch))
        optimizer.step()
        refused += [number + 1] if guard.refused else []
        optimizer.zero_grad()
    guard.close()
    weights = {name: value.reshape(-1).tolist() for name, value in model.state_dict().items()}
    (folder / f"seen-{fabric.global_rank}.json").write_text(json.dumps({"weights": weights, "refused": refused}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    place, act = Path(sys.argv[1]), sys.argv[2]
    if act == "kill":
        resumable(place, kill_after=60)
    elif act == "fabric":
        several_ranks_with_fabric(place)
    else:
        several_ranks(place, act)
