"""A forward pass in evaluation mode without gradients, with changed inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.autopsy.steps.changes import eager
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.inspection.bench.watch import Seen, Watch
from stayfinite.state.rng import restore_rng


@dataclass(frozen=True, slots=True, kw_only=True)
class StillPass:
    """The result of the pass."""

    loss: Any
    outputs: dict[str, Tensor]
    """Every tensor that the model returned, by name, before the loss."""
    seen: Seen


def still_pass(
    step: Step,
    batch: Any,
    change_ids: Callable[[int, Tensor], Tensor] | None = None,
    *,
    training: bool = False,
) -> StillPass:
    """Run ``batch`` with the step's model, forward and random numbers, and restore everything.

    ``change_ids`` changes the ids passed to embeddings; ``training`` uses training mode instead.
    """
    outputs: dict[str, Tensor] = {}

    def keep(_module: Any, _args: Any, result: Any) -> None:
        outputs.clear()
        outputs.update(
            {
                name.removeprefix("batch.").replace("batch", "output", 1): item.detach()
                for name, item in _tensors(result)
            }
        )

    watch = Watch(step.model, change_ids)
    with untouched(step.model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        restore_rng(dict(step.rng))
        if not training:
            step.model.eval()
        handle = step.model.register_forward_hook(keep)
        try:
            with torch.no_grad(), eager(), watch:
                loss = step.forward(step.changed(batch=batch).fresh_batch())
        finally:
            handle.remove()
    return StillPass(loss=loss.detach() if isinstance(loss, Tensor) else loss, outputs=outputs, seen=watch.seen)


def _tensors(result: Any) -> list[tuple[str, Tensor]]:
    return [(name, item) for name, item in batch_items(result).items() if item.is_floating_point() and item.dim()]
