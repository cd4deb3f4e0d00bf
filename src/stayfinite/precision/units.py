"""The modules that a plan speaks of: those without parts, or with weights of their own."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn


def units_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules by name that are computed as one: without children, or with matrices of their own, as attention has."""
    inside: str | None = None
    for name, module in model.named_modules():
        if inside is not None and name.startswith(inside):
            continue
        inside = None
        if next(module.children(), None) is None:
            yield name, module
        elif name and any(p is not None and p.dim() > 1 for p in module._parameters.values()):
            inside = f"{name}."
            yield name, module


def multiplies(module: nn.Module) -> bool:
    """Whether it is a matrix product with a weight: what formats make faster."""
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return False
    return any(p is not None and p.dim() > 1 for p in module._parameters.values())
