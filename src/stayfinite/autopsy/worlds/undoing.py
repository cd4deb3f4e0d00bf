"""Weights before the optimizer's last step, computed from its state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer, RAdam


def before_last_update(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor] | None:
    """Weights by name; None if the step cannot be undone, or there was none."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    weights: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if parameter not in names or not state:
                continue
            update = _update(optimizer, group, state)
            if update is None:
                return None
            decay = 1.0 - float(group["lr"]) * float(group.get("weight_decay", 0.0)) * _decoupled(optimizer, group)
            before = parameter.detach().double() + float(group["lr"]) * update
            weights[names[parameter]] = (before / decay).to(parameter.dtype)
    return weights or None


def _decoupled(optimizer: Optimizer, group: dict[str, Any]) -> float:
    return float(isinstance(optimizer, AdamW) or bool(group.get("decoupled_weight_decay")))


def _update(optimizer: Optimizer, group: dict[str, Any], state: dict[str, Tensor]) -> Tensor | None:
    """The last update divided by the learning rate."""
    if isinstance(optimizer, SGD):
        momentum = state.get("momentum_buffer")
        return None if momentum is None else momentum.double()
    if isinstance(optimizer, NAdam | RAdam) or not isinstance(optimizer, Adam | AdamW):
        return None
    if "exp_avg" not in state:
        return None
    first, second = group["betas"]
    count = float(state["step"])
    mean = state["exp_avg"].double() / (1 - float(first) ** count)
    size = (state["exp_avg_sq"].double() / (1 - float(second) ** count)).sqrt()
    eps = torch.tensor(float(group["eps"]), dtype=state["exp_avg"].dtype).double()
    update: Tensor = mean / (size + eps)
    return update
