"""AdamW with a separate learning rate for the projector."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from stayfinite.recipes.images.models import parts_of


def two_rates(
    model: nn.Module, *, lr: float, projector_lr: float, weight_decay: float, device: torch.device
) -> Optimizer:
    """AdamW over the trained parameters. Norms and biases are not decayed."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for _, parameter, projector in parts_of(model):
        groups.setdefault((projector, parameter.ndim >= 2), []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "lr": projector_lr if projector else lr,
                "weight_decay": weight_decay if decayed else 0.0,
            }
            for (projector, decayed), parameters in sorted(
                groups.items(), key=lambda item: (item[0][0], not item[0][1])
            )
        ],
        betas=(0.9, 0.98),
        fused=device.type in ("cuda", "cpu"),
    )


def rates_of(optimizer: Optimizer) -> tuple[float, float]:
    """Current learning rates: language model, projector."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    return rates[0], rates[-1]
