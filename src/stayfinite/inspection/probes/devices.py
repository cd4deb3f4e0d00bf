"""Devices of model, buffers, batch and optimizer state."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import tensors_of, without_values
from stayfinite.inspection.notes import Notes

TITLE = "model, batch and optimizer devices"


def look(bench: Bench, notes: Notes) -> None:
    """Report tensors on a different device than those they meet.

    A model on several devices, and a batch that `forward` moves, are fine if the pass works.
    """
    home = next((p.device for p in (*bench.trainable.values(), *bench.model.parameters())), torch.device("cpu"))
    elsewhere = [*_strays(bench), *without_values(bench.model, bench.batch)]
    if re.search(r"device|cuda", str(bench.first.forward_error), re.IGNORECASE):
        met = (*tensors_of(bench.model), *batch_items(bench.batch).items())
        elsewhere += [name for name, tensor in met if tensor.device != home and name not in elsewhere]
    notes.saw("device.mixed", elsewhere, str(home))
    batch = sorted({str(item.device) for item in batch_items(bench.batch).values()})
    seen = f"model on {home}, batch on {', '.join(batch) or 'none'}"
    notes.check("Devices", TITLE, "device-mismatch", seen=seen)


def _strays(bench: Bench) -> Iterator[str]:
    """Optimizer state on another device than its parameter; step counters may be on the host."""
    names = {id(p): name for name, p in bench.model.named_parameters()}
    for parameter, state in bench.optimizer.state.items():
        if not isinstance(parameter, Tensor) or not isinstance(state, dict):
            continue
        name = names.get(id(parameter), "a parameter that is not the model's")
        for key, value in state.items():
            if isinstance(value, Tensor) and value.dim() and value.device != parameter.device:
                yield f"optimizer state {key} of {name}"
