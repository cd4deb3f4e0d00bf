"""Optimizer and learning-rate schedule of a program."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def optimizer_for(model: nn.Module, *, lr: float, weight_decay: float, device: torch.device) -> Optimizer:
    """AdamW, fused where there is a kernel for it; vectors (norms, biases) are not decayed."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=lr, betas=(0.9, 0.98), fused=device.type in ("cuda", "cpu")
    )


def steps_of(batches: int, accumulation: int, epochs: int) -> int:
    """Steps of a training; the last group of an epoch may be smaller, and is a step too."""
    return max(1, -(-batches // accumulation) * epochs)


def schedule_for(optimizer: Optimizer, shape: str, *, warmup: int, steps: int) -> LambdaLR:
    """A warmup in a straight line, then down in this shape. The first step has a rate above 0."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        if shape == "linear":
            return max(0.0, 1.0 - done)
        if shape == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * done))
        if shape == "inverse_sqrt":
            return math.sqrt(max(1, warmup) / max(1, step))
        return 1.0

    return LambdaLR(optimizer, factor)
