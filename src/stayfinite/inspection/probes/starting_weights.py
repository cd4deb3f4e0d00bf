"""Initial weights."""

from __future__ import annotations

from torch import nn

LAYERS = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention, nn.Bilinear)
SMALLEST = 4
"""Fewest rows and values per row to compare."""


def alike(model: nn.Module) -> list[str]:
    """Trainable weights whose rows are all equal and nonzero: they will stay equal.

    Adapters, gates and last layers start at zero on purpose.
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
