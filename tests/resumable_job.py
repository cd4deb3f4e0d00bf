"""A training that can be killed at any moment; run by tests as ``resumable_job.py FOLDER [steps before a kill]``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stayfinite import Guard, Policy


class Silent:
    def print(self, line: Any) -> None:
        pass


def train(
    folder: Path, *, kill_after: int | None = None, own_generator: bool = False, epochs: int = 2
) -> dict[str, Any]:
    """Train, from the newest checkpoint if there is one; if asked, end by SIGKILL after so many steps."""
    torch.manual_seed(3)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(96, 6), torch.randn(96, 1))
    generator = torch.Generator().manual_seed(5) if own_generator else None
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=generator)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 24)
    guard = Guard(
        model, optimizer, scheduler, policy=Policy(checkpoint_steps=3, prove_steps=2), run_dir=folder, console=Silent()
    )
    first = step = guard.resume()
    for _ in range(epochs):
        for number, (x, y) in enumerate(guard.batches(loader)):
            guard.backward((model(x) - y).square().mean() / 2)
            if number % 2:
                guard.step()
                step += 1
                if kill_after is not None and step - first == kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)
    guard.close()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "first": first, "step": step}


if __name__ == "__main__":
    result = train(Path(sys.argv[1]), kill_after=int(sys.argv[2]) if len(sys.argv) > 2 else None)
    torch.save(result, Path(sys.argv[1]) / "result.pt")
