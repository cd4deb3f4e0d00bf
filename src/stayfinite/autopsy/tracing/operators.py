"""Facts about an operator and its arguments."""

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
"""The most common tensor types, for a fast check."""


@dataclass(slots=True, frozen=True)
class Kind:
    """An operator of torch or of another package."""

    name: str
    """`aten.mm`."""
    overload: str
    """`Tensor_Scalar`."""
    is_view: bool
    """Whether it computes nothing."""
    writes: bool
    """Whether it modifies an argument."""


def kind_of(func: Any) -> Kind:
    """Facts about an operator."""
    bare = func._schema.name.removeprefix("aten::") if func.namespace == "aten" else func._schema.name
    return Kind(
        name=f"aten.{bare}" if func.namespace == "aten" else bare.replace("::", "."),
        overload=func._overloadname,
        is_view=bare in VIEWS,
        writes=bool(func._schema.is_mutable),
    )


def sort_out(items: Iterable[Any], tensors: list[Tensor], numbers: list[float]) -> None:
    """Collect tensors and numbers among an operator's arguments, including nested lists."""
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
    """Start address of the storage, shared by all tensors in it."""
    try:
        start = tensor.data_ptr()
        if start:
            return start - int(tensor.storage_offset()) * tensor.element_size()
        return int(tensor.untyped_storage()._cdata)  # no memory; accessing the storage object is slow
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a single storage
        return id(tensor)


def is_part(tensor: Tensor) -> bool:
    """Whether a tensor covers only a part of its storage."""
    try:
        return tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return False


NAMES = {kind: str(kind).removeprefix("torch.") for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
"""Names of dtypes: `float16`."""
