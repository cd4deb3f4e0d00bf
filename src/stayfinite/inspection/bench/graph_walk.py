"""Walk the autograd graph of a loss."""

from __future__ import annotations

from typing import Any

from torch import Tensor

THROUGH = ("View", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Permute", "T", "ToCopy", "Clone", "Alias", "Slice")
"""Operators that change no value."""


def leaves_of(loss: Tensor) -> frozenset[int]:
    """The ``id`` of every leaf tensor of a loss."""
    found: set[int] = set()
    met: set[Any] = set()
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in met:
            continue
        met.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.add(id(variable))
        waiting += [following for following, _ in node.next_functions]
    return frozenset(found)


def made_by(tensor: Tensor) -> str:
    """The operator that produced a tensor, such as `Softmax`, ignoring shape changes."""
    node: Any = tensor.grad_fn
    while node is not None:
        name = str(node.name()).removesuffix("0").removesuffix("Backward")
        if not name.lstrip("_").startswith(THROUGH):
            return name
        node = node.next_functions[0][0] if node.next_functions else None
    return ""
