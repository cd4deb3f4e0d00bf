"""The modules that a plan speaks of: those without parts, or with weights of their own."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from stayfinite.precision.patterns import pattern_of

CHOOSING = ("lm_head", "head", "output_layer", "embed_out", "classifier", "score", "router")
"""Names that heads and routers go by."""


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


def choosing(model: nn.Module) -> set[str]:
    """Linear layers that choose: heads and routers.

    Their outputs are compared with one another, and nothing after them averages an error out.
    """
    words = {tuple(m.weight.shape) for m in model.modules() if isinstance(m, nn.Embedding)}
    head = getattr(model, "get_output_embeddings", lambda: None)()

    def chooses(name: str, module: nn.Linear) -> bool:
        alone = pattern_of(name) == name  # no layer of many alike, which may have the shape of an embedding by chance
        shaped = alone and tuple(module.weight.shape) in words
        return module is head or shaped or name.rpartition(".")[2] in CHOOSING

    return {name for name, each in model.named_modules() if isinstance(each, nn.Linear) and chooses(name, each)}
