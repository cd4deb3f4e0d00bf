"""Extract the loss from a forward pass, and provide a default forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from stayfinite.errors import LossError, UsageError

FORWARD = "forward=lambda batch: F.cross_entropy(model(batch[0]), batch[1]), for example"


def forward_for(model: nn.Module, batch: Any, forward: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """The given forward, or for a mapping ``model(**batch)`` and its loss. Raises UsageError otherwise."""
    if forward is not None and not callable(forward):
        raise UsageError(f"expected forward(batch) -> loss, not {type(forward).__name__}", fix=FORWARD)
    if forward is None and not isinstance(batch, Mapping):
        raise UsageError(f"cannot compute a loss from a batch of type {type(batch).__name__}", fix=FORWARD)
    run = forward or (lambda given: model(**given))
    return lambda given: loss_in(run(given))


def loss_in(returned: Any) -> Any:
    """The loss in a return value: itself, ``.loss``, ``["loss"]`` or the first item. Raises LossError without one."""
    if isinstance(returned, Tensor | int | float):
        return returned
    if isinstance(returned, Mapping) and returned.get("loss") is not None:
        return returned["loss"]
    if isinstance(getattr(returned, "loss", None), Tensor):
        return returned.loss
    if isinstance(returned, tuple | list) and returned and isinstance(returned[0], Tensor):
        return returned[0]
    if hasattr(returned, "item") and callable(returned.item):  # a numpy number without a graph
        return returned.item() if getattr(returned, "size", 1) == 1 else returned
    hint = "put the labels into the batch" if hasattr(returned, "logits") else FORWARD
    raise LossError(f"the forward pass returned {type(returned).__name__} without a loss", fix=hint)
