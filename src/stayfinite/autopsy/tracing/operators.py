"""What is known of an operator before it runs, and what can be told of its arguments quickly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

VIEWS = frozenset({
    "view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "alias",
    "detach", "split", "split_with_sizes", "unbind", "as_strided", "diagonal", "unfold", "chunk", "reshape",
    "_reshape_alias", "lift_fresh", "view_as_real", "view_as_complex", "movedim", "narrow",
})  # fmt: skip

PLAIN = (Tensor, nn.Parameter)
"""Types of nearly all tensors, which are told by a look at the type alone."""


@dataclass(slots=True, frozen=True)
class Kind:
    """One operator of torch, or of somebody else."""

    name: str
    """`aten.mm`."""
    overload: str
    """`Tensor_Scalar`."""
    is_view: bool
    """It computes nothing."""
    writes: bool
    """It changes a tensor that it is given."""


def kind_of(func: Any) -> Kind:
    """What an operator is."""
    bare = func._schema.name.removeprefix("aten::") if func.namespace == "aten" else func._schema.name
    return Kind(
        name=f"aten.{bare}" if func.namespace == "aten" else bare.replace("::", "."),
        overload=func._overloadname,
        is_view=bare in VIEWS,
        writes=bool(func._schema.is_mutable),
    )


def sort_out(items: Iterable[Any], tensors: list[Tensor], numbers: list[float]) -> None:
    """Tensors and numbers among an operator's arguments, in lists as well."""
    for item in items:
        kind = type(item)
        if kind in PLAIN:
            tensors.append(item)
        elif item is None:
            continue
        elif isinstance(item, int | float):
            numbers.append(float(item))
        elif kind is list or kind is tuple or isinstance(item, list | tuple):
            sort_out(item, tensors, numbers)
        elif isinstance(item, Tensor):
            tensors.append(item)


def storage_of(tensor: Tensor) -> int:
    """A number that all tensors share that live in the same memory: where it begins."""
    try:
        start = tensor.data_ptr()
        if start:
            return start - int(tensor.storage_offset()) * tensor.element_size()
        return int(tensor.untyped_storage()._cdata)  # there is no memory; a storage takes long to be asked for
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without one storage
        return id(tensor)


def is_part(tensor: Tensor) -> bool:
    """Whether a tensor is not all of its storage."""
    try:
        return tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return False


NAMES = {kind: str(kind).removeprefix("torch.") for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
"""Of dtypes: `float16`."""
