"""Tells the rows of a step's batch from those of a whole data set that its statements slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from stayfinite.autopsy.steps.batch_parts import bad_rows, batch_items, batch_size
from stayfinite.autopsy.tracing.origin import Origin, batch_rows


def slices_a_data_set(data: Mapping[str, Any], given: Tensor | None) -> bool:
    """Whether the tensors of a step hold more rows than the model was given.

    Arguments:
        given: the model's last training input; None if unknown.
    """
    size = batch_size(data)
    return given is not None and size is not None and size > len(given) and size not in given.shape[:2]


def rows_that_can_be_left_out(data: Mapping[str, Any], given: Tensor | None) -> dict[str, Any]:
    """The tensors whose rows may be blamed or left out.

    Leaving a row out of a sliced data set shifts all later rows, so a finite data set is not among them. One with NaN
    or inf stays: its own bad rows are known.
    """
    if given is None or not slices_a_data_set(data, given):
        return dict(data)
    if rows_with_nan(data):
        return dict(data)
    return {name: value for name, value in data.items() if batch_size({name: value}) == len(given)}


def rows_with_nan(data: Mapping[str, Any]) -> set[int]:
    """Rows in which a tensor of the data holds NaN or inf."""
    size = batch_size(data)
    items = [item for item in batch_items(data).values() if item.is_floating_point()]
    return set() if size is None else {row for item in items for row in bad_rows(item, size)}


def rows_of_the_origin(origin: Origin | None, given: Tensor | None) -> list[int]:
    """Batch rows in which bad values began, from the shape of the first bad tensor; empty if unknown or all."""
    look = None if origin is None else origin.look
    if look is None or given is None or (origin is not None and origin.leaf):
        return []
    rows = batch_rows(look.output.shape, look.output.bad_rows, len(given))
    return rows if len(rows) < len(given) else []
