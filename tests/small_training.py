"""Small real trainings with everything in them that has a state, and a look at that state down to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from stayfinite.state.parts import TrainingParts


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up = nn.Linear(8, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.1)
        self.down = nn.Linear(width, 4)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf, 0.0, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.drop(torch.relu(self.norm(self.up(x))))) + torch.exp(self.mask)


def eight_bit(params: Any) -> Optimizer:
    import bitsandbytes

    return bitsandbytes.optim.AdamW8bit(params, lr=1e-2, min_8bit_size=1)


OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "AdamW-fused": lambda params: torch.optim.AdamW(params, lr=1e-2, fused=True),
    "AdamW-foreach": lambda params: torch.optim.AdamW(params, lr=1e-2, foreach=True, amsgrad=True),
    "AdamW-tensor-lr": lambda params: torch.optim.AdamW(params, lr=torch.tensor(1e-2)),
    "SGD-momentum": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9),
    "SGD-plain": lambda params: torch.optim.SGD(params, lr=1e-2),
    "Adafactor": lambda params: torch.optim.Adafactor(params, lr=1e-2),
    "NAdam": lambda params: torch.optim.NAdam(params, lr=1e-2),
    "AdamW8bit": eight_bit,
}


class Counter:
    """An extra part with a state of its own."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.refuses = False

    def state_dict(self) -> dict[str, Any]:
        return {"seen": list(self.seen), "sum": torch.tensor(sum(self.seen))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = list(state["seen"])
        if self.refuses:
            raise KeyError("sum of what?")


class Training:
    def __init__(
        self, optimizer: str = "AdamW-foreach", *, seed: int = 0, width: int = 16, everything: bool = True
    ) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = Net(width)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 50)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3) if everything else None
        self.ema = AveragedModel(self.model) if everything else None
        self.counter = Counter()
        self.parts = TrainingParts(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            scaler=self.scaler,
            ema=self.ema,
            extra={"counter": self.counter},
        )
        self.losses: list[float] = []

    def steps(self, count: int = 1) -> None:
        for _ in range(count):
            x = torch.randn(16, 8) * (1 + random.random()) + float(np.random.rand())
            loss = self.model(x).pow(2).mean()
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            self.scheduler.step()
            if self.ema is not None:
                self.ema.update_parameters(self.model)
            self.counter.seen.append(len(self.counter.seen))
            self.losses.append(loss.item())

    def everything(self) -> dict[str, Any]:
        names = {p: name for name, p in self.model.named_parameters()}
        return fingerprint(
            model=dict(self.model.state_dict()),
            moments={names[p]: dict(each) for p, each in self.optimizer.state.items() if each},
            groups=[{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups],
            schedule=self.scheduler.state_dict(),
            scaler=None if self.scaler is None else self.scaler.state_dict(),
            ema=None if self.ema is None else dict(self.ema.state_dict()),
            counter=self.counter.seen,
            rng=(random.getstate(), torch.get_rng_state(), np.random.get_state()),
        )


def fingerprint(**things: Any) -> dict[str, Any]:
    """Every leaf by its path; tensors down to the last bit."""
    leaves: dict[str, Any] = {}

    def walk(path: str, thing: Any) -> None:
        if isinstance(thing, Tensor):
            flat = thing.detach().cpu().contiguous().reshape(-1)
            leaves[path] = (str(thing.dtype), tuple(thing.shape), flat.view(torch.uint8).numpy().tobytes())
        elif isinstance(thing, dict):
            leaves[path] = f"{len(thing)} entries"
            for name, value in thing.items():
                walk(f"{path}.{name}", value)
        elif isinstance(thing, list | tuple):
            leaves[path] = f"{len(thing)} entries"
            for index, value in enumerate(thing):
                walk(f"{path}[{index}]", value)
        elif isinstance(thing, np.ndarray):
            leaves[path] = thing.tobytes()
        else:
            leaves[path] = repr(thing)

    for name, thing in things.items():
        walk(name, thing)
    return leaves


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [path for path in before | after if before.get(path) != after.get(path)]
