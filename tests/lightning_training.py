"""A small training by Lightning's Trainer, with a fault in one batch of it, run with or without the integration."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stayfinite import Policy
from stayfinite.integrations.lightning import StayFinite
from tiny_training import Lines, fingerprint

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)

LIGHTNING_SAYS = [
    # Of the number of workers and the like; and what Lightning still uses although torch deprecates it.
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
]
"""Marks for tests of Lightning: its own warnings are not what is tested."""

NAN, INF = float("nan"), float("inf")
BATCHES, ROWS = 40, 8
FAULTS = ("nan-batch", "nan-gradient", "inf-loss", "spike")


class Net(nn.Module):
    """Running statistics and dropout: what a refused or a repeated forward pass would give away."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.drop, self.down = (
            nn.Linear(6, 16),
            nn.BatchNorm1d(16),
            nn.Dropout(0.1),
            nn.Linear(16, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.drop(torch.tanh(self.norm(self.up(x)))))


class Regression(pl.LightningModule):
    """Learns a smooth function; ``fault`` strikes in the batches named."""

    interval = "step"
    by_hand = False

    def __init__(self, fault: str = "", at: tuple[int, ...] = (7,)) -> None:
        super().__init__()
        self.net, self.fault, self.at = Net(), fault, at
        self.automatic_optimization = not self.by_hand
        self.calls = 0
        self.losses: list[float] = []

    def strikes(self, kind: str) -> bool:
        return self.fault == kind and self.trainer.fit_loop.total_batch_idx in self.at

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        self.calls += 1
        loss = (self.net(x) - y).square().mean()
        if self.strikes("inf-loss"):
            loss = loss * INF
        return loss * 50 if self.strikes("spike") else loss

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.losses.append(float(loss.detach()))
        self.log("train_loss", loss)
        return loss

    def on_after_backward(self) -> None:
        if self.strikes("nan-gradient"):
            self.net.up.weight.grad[2, 1] = NAN

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", (self.net(x) - y).square().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.02 * step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


def loader(bad: tuple[int, ...] = (), *, seed: int = 1, **settings: Any) -> DataLoader[Any]:
    """Batches of which some have a NaN in their fourth row."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCHES * ROWS, 6, generator=generator)
    y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2]
    for batch in bad:
        x[batch * ROWS + 3, 2] = NAN
    return DataLoader(TensorDataset(x, y), batch_size=ROWS, **settings)


def batches_of(module: Any) -> DataLoader[Any]:
    return loader(module.at if module.fault == "nan-batch" else ())


class Witness(pl.Callback):
    """Remembers the whole training before and after each batch."""

    def __init__(self) -> None:
        self.before: list[dict[str, Any]] = []
        self.after: list[dict[str, Any]] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.before.append(everything(trainer, pl_module))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.after.append(everything(trainer, pl_module))

    @property
    def untouched(self) -> list[int]:
        return [number for number, pair in enumerate(zip(self.before, self.after, strict=True)) if pair[0] == pair[1]]


def everything(trainer: Any, module: Any) -> dict[str, Any]:
    return fingerprint(
        model=dict(module.state_dict()),
        optimizers=[each.state_dict() for each in trainer.optimizers],
        schedules=[each.scheduler.state_dict() for each in trainer.lr_scheduler_configs],
    )


def trainer(folder: Path, callbacks: list[Any], **settings: Any) -> pl.Trainer:
    return pl.Trainer(
        callbacks=callbacks,
        default_root_dir=folder,
        accelerator="cpu",
        **{
            "max_epochs": 1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
        }
        | settings,
    )


def guarded(folder: Path, policy: Policy | None = None, **settings: Any) -> StayFinite:
    return StayFinite(policy or Policy(), folder / "run", console=Lines(), **settings)


def fit(
    folder: Path, callbacks: list[Any], module: pl.LightningModule | None = None, **settings: Any
) -> tuple[pl.LightningModule, pl.Trainer]:
    """Train from fixed seeds."""
    runner = trainer(folder, callbacks, **settings)
    module = module or build()
    torch.manual_seed(11)
    runner.fit(module, batches_of(module))
    return module, runner


def build(kind: type[pl.LightningModule] = Regression, *args: Any, **settings: Any) -> pl.LightningModule:
    torch.manual_seed(0)
    return kind(*args, **settings)


def events(folder: Path, kind: str = "", run: str = "run") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / run / "events.jsonl").read_text().splitlines()]
    return [each for each in lines if not kind or each["event"] == kind]


@torch.no_grad()
def error(module: pl.LightningModule) -> float:
    """How far the model is off on data that it has not seen."""
    net = module.net.eval()
    batches = list(loader(seed=2))
    parameter = next(net.parameters())
    return sum(float((net(x.to(parameter.dtype)) - y).square().mean()) for x, y in batches) / len(batches)
