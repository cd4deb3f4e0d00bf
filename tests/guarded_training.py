"""A small training whose forward pass the guard knows, so that a bad step can be captured and explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite import Guard, Policy
from tiny_training import Lines, fingerprint

NAN = float("nan")


class NoisyNet(nn.Module):
    """Dropout and a running mean: both would give a re-run away that is not put back."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("mean", torch.zeros(16))
        self.drop = nn.Dropout(0.2)
        self.down = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.up(x))
        self.mean.mul_(0.9).add_(hidden.detach().mean(0), alpha=0.1)
        return self.down(self.drop(torch.tanh(hidden - self.mean)))


class GuardedTraining:
    def __init__(
        self,
        run_dir: Path | None = None,
        *,
        policy: Policy | None = None,
        forward: Any = None,
        device: str = "cpu",
        optimizer: Any = None,
        **settings: Any,
    ) -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = NoisyNet().to(device)
        make = optimizer or (lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1))
        self.optimizer = make(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + 0.05 * step))
        self.console = Lines()
        self.calls = 0
        self.data = torch.Generator().manual_seed(3)
        self.guard = Guard(
            self.model,
            self.optimizer,
            self.scheduler,
            policy=policy or Policy(prove_steps=2, autopsy_seconds=600),  # however often the machine stands still
            run_dir=run_dir,
            forward=forward or self.loss,
            console=self.console,
            **settings,
        )

    def loss(self, batch: Any) -> Tensor:
        self.calls += 1
        return (self.model(batch["x"]) - batch["y"]).pow(2).mean()

    def batch(self, value: float | None = None, row: int = 3) -> dict[str, Tensor]:
        x = torch.randn(16, 8, generator=self.data)
        if value is not None:
            x[row, 2] = value
        return {"x": x.to(self.device), "y": (x.nan_to_num(0.0, 0.0, 0.0)[:, :4] * 0.5).to(self.device)}

    def steps(self, count: int = 1, value: float | None = None) -> None:
        for _ in range(count):
            self.guard.step(self.guard.forward(self.batch(value)))

    def until_nan(self, healthy: int) -> None:
        """So many healthy steps, and one whose batch holds a NaN."""
        self.steps(healthy)
        self.steps(1, NAN)

    def everything(self) -> dict[str, Any]:
        return fingerprint(
            model=dict(self.model.state_dict()),
            gradients={name: p.grad for name, p in self.model.named_parameters() if p.grad is not None},
            moments=[dict(self.optimizer.state.get(p, {})) for p in self.model.parameters()],
            groups=[{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups],
            schedule=self.scheduler.state_dict(),
            rng=torch.get_rng_state(),
            training=[module.training for module in self.model.modules()],
        )


def events(folder: Path, kind: str, name: str = "events.jsonl") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [each for each in lines if each["event"] == kind]


def incidents(folder: Path) -> list[str]:
    place = folder / "incidents"
    return sorted(path.name for path in place.iterdir()) if place.exists() else []
