"""Weights as they start."""

from __future__ import annotations

from torch import nn

LAYERS = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention, nn.Bilinear)
SMALLEST = 4
"""Rows, and values in a row, of what can be told to be alike."""


def alike(model: nn.Module) -> list[str]:
    """Weights of layers that are to learn whose rows are all the same, and not zero: they will stay the same.

    Zero is where adapters, gates and last layers start on purpose.
    """
    found = []
    for path, module in model.named_modules():
        if not isinstance(module, LAYERS):
            continue
        for name, p in module.named_parameters(recurse=False):
            if p.dim() < 2 or not p.requires_grad or not p.is_floating_point() or p.is_meta:
                continue
            rows = p.detach().reshape(p.shape[0], -1)
            if min(rows.shape) < SMALLEST or not bool(rows[0].any()):
                continue
            if bool((rows == rows[:1]).all()):
                found.append(f"{path}.{name}" if path else name)
    return found
