"""Tensor names, shortened for people, and tensors without values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from stayfinite.autopsy.steps.batch_parts import batch_items

SHOWN = 3


def names_in_short(names: Sequence[str]) -> str:
    """The first few, with the rest counted: `encoder.0.weight, encoder.0.bias and 4 more`."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by name."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def without_values(model: nn.Module, batch: Any) -> list[str]:
    """Names of tensors on the meta device."""
    return [name for name, tensor in (*tensors_of(model), *batch_items(batch).items()) if tensor.is_meta]
