"""A small training into which faults are planted, and how to ask what preflight makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stayfinite import preflight

Batch = dict[str, Tensor]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 24)
        self.second = nn.Linear(24, 24)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.first(x))
        return self.head(self.drop(F.gelu(self.second(x))))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    return {"x": torch.randn(16, 12, generator=generator), "label": torch.arange(16) % 5}


def adamw(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def cross_entropy(model: nn.Module) -> Callable[[Batch], Tensor]:
    return lambda given: F.cross_entropy(model(given["x"]), given["label"])


def causes(
    model: nn.Module,
    optimizer: Any = None,
    given: Any = None,
    forward: Callable[[Any], Any] | None = None,
    **settings: Any,
) -> list[str]:
    """What preflight says is wrong, the likeliest first."""
    found = preflight(
        model,
        optimizer or adamw(model),
        batch() if given is None else given,
        forward or cross_entropy(model),
        steps=0,
        **settings,
    )
    return [finding.cause for finding in found if finding.severity != "info"]
