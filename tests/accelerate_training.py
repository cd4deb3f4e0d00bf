"""A small training by hand with accelerate, as its own examples write it, with a fault in one batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stayfinite.integrations.accelerate import accelerate_guard
from tiny_training import Lines, fingerprint

NAN, INF = float("nan"), float("inf")
BATCHES, ROWS = 40, 8
FAULTS = ("nan-batch", "nan-gradient", "inf-loss", "spike")


class Answer(dict[str, Any]):
    """What a model returns that computes its own loss."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(6, 16), nn.BatchNorm1d(16)
        self.drop, self.down = nn.Dropout(0.1), nn.Linear(16, 1)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        found = self.down(self.drop(torch.tanh(self.norm(self.up(x)))))
        return found if y is None else Answer(loss=(found - y).square().mean(), found=found)


class Training:
    """Built from fixed seeds; ``guard`` is what ``accelerate_guard`` is given beside the parts, None for no guard."""

    def __init__(
        self,
        guard: dict[str, Any] | None = None,
        *,
        fault: str = "",
        at: tuple[int, ...] = (7,),
        accelerator: dict[str, Any] | None = None,
        scaler: Any = None,
        own_loss: bool = False,
        clip: float | None = 1.0,
        rate: Any = None,
    ) -> None:
        AcceleratorState._reset_state(True)
        GradientState._reset_state()
        self.accelerator = Accelerator(cpu=True, **(accelerator or {}))
        if scaler is not None:
            # accelerate makes one of its own on a GPU only.
            self.accelerator.scaler = scaler
        self.fault, self.at, self.own_loss, self.clip = fault, at, own_loss, clip
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate or (lambda step: 1 / (1 + 0.02 * step)))
        prepared = self.accelerator.prepare(model, optimizer, self.loader(), scheduler)
        self.model, self.optimizer, self.batches, self.scheduler = prepared
        self.guard = None
        if guard is not None:
            settings = {"console": Lines()} | guard
            self.guard = accelerate_guard(self.accelerator, self.model, self.optimizer, self.scheduler, **settings)
        torch.manual_seed(11)
        self.before: list[Any] = []
        self.after: list[Any] = []
        self.skipped: list[bool] = []
        self.losses: list[float] = []

    def loader(self, seed: int = 1) -> DataLoader[Any]:
        x = torch.randn(BATCHES * ROWS, 6, generator=torch.Generator().manual_seed(seed))
        y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2]
        for batch in self.at if self.fault == "nan-batch" else ():
            x[batch * ROWS + 3, 2] = NAN
        return DataLoader(TensorDataset(x, y), batch_size=ROWS)

    def epoch(self, start: int = 0) -> None:
        """One epoch in the manner of accelerate's examples."""
        for number, (x, y) in enumerate(self.batches):
            if number >= start:
                self.step(number, x, y)

    def step(self, number: int, x: Tensor, y: Tensor) -> None:
        accelerator = self.accelerator
        self.before.append(self.everything())
        with accelerator.accumulate(self.model):
            if self.own_loss:
                loss = (self.model(x) - y).square().mean()
            else:
                loss = self.model(x=x, y=y)["loss"]
            struck = number in self.at
            if struck and self.fault in ("inf-loss", "spike"):
                loss = loss * (INF if self.fault == "inf-loss" else 50)
            self.losses.append(float(loss.detach()))
            accelerator.backward(loss)
            if struck and self.fault == "nan-gradient":
                next(self.model.parameters()).grad[2, 1] = NAN
            if accelerator.sync_gradients and self.clip is not None:
                accelerator.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            self.scheduler.step()
            self.skipped.append(accelerator.optimizer_step_was_skipped)
            self.optimizer.zero_grad()
        self.after.append(self.everything())

    def close(self) -> None:
        if self.guard is not None:
            self.guard.close()

    def everything(self) -> dict[str, Any]:
        return fingerprint(
            model=dict(self.model.state_dict()),
            optimizer=self.optimizer.state_dict(),
            schedule={k: v for k, v in self.scheduler.state_dict().items() if k != "_step_count"},
        )

    @property
    def untouched(self) -> list[int]:
        return [number for number, pair in enumerate(zip(self.before, self.after, strict=True)) if pair[0] == pair[1]]

    @torch.no_grad()
    def error(self) -> float:
        """How far the model is off on data that it has not seen."""
        self.fault = ""
        model = self.model.eval()
        return sum(float((model(x) - y).square().mean()) for x, y in self.loader(seed=2)) / BATCHES


def events(folder: Path, kind: str = "") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [each for each in lines if not kind or each["event"] == kind]
