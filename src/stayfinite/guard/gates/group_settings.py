"""Save and restore the settings of an optimizer's groups (learning rate, momentum, decay)."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

GroupSettings = list[dict[str, Any]]


def settings_of(optimizer: Optimizer) -> GroupSettings:
    """Copy everything in the groups except the parameters."""
    return [
        {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        for group in optimizer.param_groups
    ]


def give_back(optimizer: Optimizer, settings: GroupSettings) -> None:
    """Restore settings; tensors are written in place, because fused kernels and graphs keep references to them."""
    for group, saved in zip(optimizer.param_groups, settings, strict=False):
        for name, value in saved.items():
            if isinstance(group.get(name), Tensor):
                group[name].copy_(value)
            else:
                group[name] = value
