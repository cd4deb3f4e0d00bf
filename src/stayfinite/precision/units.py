"""The modules a plan assigns formats to: leaves, and modules with their own weights; and short lists of names."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from torch import nn

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


def pattern_of(name: str) -> str:
    """The name with `*` for its numbers."""
    return _NUMBER.sub("*", name)


def collapsed(names: Iterable[str], among: Collection[str] = ()) -> list[str]:
    """Names by pattern, with `*` for numbers where several names differ in nothing else.

    Arguments:
        names: the names to show.
        among: all names there are. A pattern that matches more than ``names`` is counted: `blocks.*.wo (3 of 12)`.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(pattern_of(name), []).append(name)
    every = Counter(map(pattern_of, among))
    shown: list[str] = []
    for pattern, members in groups.items():
        if len(members) == 1 or not re.search("[a-z]", pattern, re.IGNORECASE):  # `*` alone says nothing
            shown.extend(name or "the model itself" for name in members)
        elif every[pattern] > len(members):
            shown.append(f"{pattern} ({len(members)} of {every[pattern]})")
        else:
            shown.append(pattern)
    return shown


CHOOSING = ("lm_head", "head", "output_layer", "embed_out", "classifier", "score", "router")
"""Usual names of heads and routers."""


def units_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules computed as one, by name: without children, or with weight matrices of their own, like attention."""
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
    """Whether the module is a matrix product with a weight."""
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return False
    return any(p is not None and p.dim() > 1 for p in module._parameters.values())


def choosing(model: nn.Module) -> set[str]:
    """Linear layers whose outputs are compared with one another: heads and routers.

    Nothing after them averages an error out.
    """
    words = {tuple(m.weight.shape) for m in model.modules() if isinstance(m, nn.Embedding)}
    head = getattr(model, "get_output_embeddings", lambda: None)()

    def chooses(name: str, module: nn.Linear) -> bool:
        alone = pattern_of(name) == name  # repeated layers may have an embedding's shape by chance
        shaped = alone and tuple(module.weight.shape) in words
        return module is head or shaped or name.rpartition(".")[2] in CHOOSING

    return {name for name, each in model.named_modules() if isinstance(each, nn.Linear) and chooses(name, each)}
