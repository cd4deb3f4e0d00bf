"""The settings of an optimizer's groups (learning rate, momentum, decay), taken and given back."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

GroupSettings = list[dict[str, Any]]


def settings_of(optimizer: Optimizer) -> GroupSettings:
    """A copy of everything in the groups but their parameters."""
    return [
        {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        for group in optimizer.param_groups
    ]


def give_back(optimizer: Optimizer, settings: GroupSettings) -> None:
    """Write settings back; what is a tensor stays the same one, because fused kernels and graphs hold on to it."""
    for group, saved in zip(optimizer.param_groups, settings, strict=False):
        for name, value in saved.items():
            if isinstance(group.get(name), Tensor):
                group[name].copy_(value)
            else:
                group[name] = value
