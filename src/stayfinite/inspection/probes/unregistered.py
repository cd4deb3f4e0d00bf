"""Trainable layers and tensors that the model does not register."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from stayfinite.inspection.bench.watch import Seen


def unregistered(model: nn.Module, leaves: frozenset[int]) -> list[str]:
    """Names of tensors in plain lists, dicts and attributes that the loss depends on but parameters() lacks.

    Arguments:
        model: the model.
        leaves: the ``id`` of every leaf tensor of the loss.
    """
    known = {id(p) for p in model.parameters()} | {id(b) for b in model.buffers()}
    modules = {id(module) for module in model.modules()}
    found: dict[int, str] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            for where, tensor in _tensors(value, f"{path}.{name}" if path else name, modules, 3):
                if tensor.requires_grad and tensor.is_leaf and id(tensor) in leaves and id(tensor) not in known:
                    found.setdefault(id(tensor), where)
    return list(found.values())


def made_anew(first: Seen, again: Seen, leaves: frozenset[int]) -> list[str]:
    """Parameters that every pass creates again: layers built inside ``forward``.

    A second network, such as a discriminator, keeps its parameters between passes.
    """
    lasting = first.strangers.keys() & again.strangers.keys()
    anew = [each for key, each in first.strangers.items() if key in leaves and key not in lasting]
    if len(again.strangers) == len(lasting):
        return []
    return [f"one of shape {list(tensor.shape)} is created in each pass, used at {where}" for tensor, where in anew]


def _tensors(value: Any, where: str, modules: set[int], depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield where, value
    elif isinstance(value, nn.Module):
        if id(value) not in modules:
            for name, p in value.named_parameters():
                yield f"{where}.{name}", p
    elif isinstance(value, list | tuple) and depth:
        for index, each in enumerate(value):
            yield from _tensors(each, f"{where}.{index}", modules, depth - 1)
    elif isinstance(value, dict) and depth:
        for key, each in value.items():
            yield from _tensors(each, f"{where}.{key}", modules, depth - 1)
