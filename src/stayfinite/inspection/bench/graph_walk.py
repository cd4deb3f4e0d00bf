"""Walk the autograd graph of a loss."""

from typing import Any

from torch import Tensor

THROUGH = ("View", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Permute", "T", "ToCopy", "Clone", "Alias", "Slice")
"""Operators that change no value."""


MOST_NODES = 100_000


def nodes_from(last: Any) -> set[Any]:
    """All nodes reachable backwards from this one."""
    met: set[Any] = set()
    waiting = [last]
    while waiting and len(met) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in met:
            continue
        met.add(node)
        waiting += [following for following, _ in node.next_functions]
    return met


def leaves_of(loss: Tensor) -> list[Tensor]:
    """Leaf tensors of a loss."""
    variables = [getattr(node, "variable", None) for node in nodes_from(loss.grad_fn)]
    return list({id(each): each for each in variables if each is not None}.values())


def made_by(tensor: Tensor) -> str:
    """The operator that produced a tensor, such as `Softmax`, ignoring shape changes."""
    node: Any = tensor.grad_fn
    while node is not None:
        name = str(node.name()).removesuffix("0").removesuffix("Backward")
        if not name.lstrip("_").startswith(THROUGH):
            return name
        node = node.next_functions[0][0] if node.next_functions else None
    return ""
