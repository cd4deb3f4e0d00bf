"""A few steps of training in fp16 autocast with a loss scaler, or in fp32, over the same batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn

from stayfinite.precision.surgery.groups import matching_groups
from stayfinite.precision.surgery.measuring import evaluating, measure
from stayfinite.precision.surgery.result import Trial

SEARCH = 60
"""Skipped steps after which there is no loss scale: from 2**16 it is then below what a float of 32 bits holds well."""
LOOK = 50
"""Steps between two looks at the activations."""


def train_a_little(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    *,
    steps: int,
    precision: Literal["fp16", "fp32"],
    exponents: Mapping[str, int],
    network: str,
    lr: float = 1e-4,
) -> Trial:
    """Train a copy of the model, without dropout; the model itself is not touched.

    Arguments:
        steps: updates of the weights; what the scaler skips for its scale comes on top.
        exponents: of the parameters that were rescaled; none for the original.
        lr: the original's, for AdamW; the rescaled network gets groups that match it.
    """
    model = copy.deepcopy(model)
    device = next(model.parameters()).device.type
    optimizer = torch.optim.AdamW(matching_groups(model, exponents, lr=lr), lr=lr)
    half = precision == "fp16"
    scaler = torch.amp.GradScaler(device, enabled=half)
    overflows = skipped = taken = in_a_row = 0
    losses: list[float] = []
    largest = 0.0
    first: tuple[int, str] | None = None
    with evaluating(model):
        while (step := taken + overflows) < steps and skipped < SEARCH and in_a_row < SEARCH:
            batch = batches[step % len(batches)]
            with torch.amp.autocast(device, dtype=torch.float16, enabled=half):
                loss = model(**batch).loss
            value = float(loss.detach())
            lost = not math.isfinite(value)
            if (lost and first is None) or step % LOOK == 0 or step == steps - 1:
                with torch.amp.autocast(device, dtype=torch.float16, enabled=half):
                    seen, broken = _activations(model, batch)
                largest = max(largest, seen)
                first = (step, broken) if lost and first is None else first
            scale = scaler.get_scale()
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if lost:
                overflows += 1
                in_a_row += 1
            elif half and scaler.get_scale() < scale:
                skipped += 1  # the same batch comes again, at a lower scale
            else:
                taken += 1
                in_a_row = 0
                losses.append(value)
    return Trial(
        network=network,
        precision=precision,
        steps=taken,
        overflows=overflows,
        skipped=skipped,
        first_loss=losses[0] if losses else None,
        last_loss=_end(losses, len(batches)) if taken == steps else None,
        scale=scaler.get_scale() if half else None,
        largest=largest,
        overflow_step=first[0] if first else None,
        overflow_module=first[1] if first else "",
    )


def _activations(model: nn.Module, batch: Mapping[str, Any]) -> tuple[float, str]:
    """The largest finite value at a linear layer, and the first layer with one that is not finite."""
    sizes = measure(model, [batch], lambda given: model(**given))
    linear = {path for path, module in model.named_modules() if isinstance(module, nn.Linear)}
    at = {name: size.largest for name, size in sizes.items() if name.partition(":")[0] in linear}
    finite = [largest for largest in at.values() if math.isfinite(largest)]
    broken = (name.partition(":")[0] for name, largest in at.items() if not math.isfinite(largest))
    return max(finite, default=0.0), next(broken, "")


def _end(losses: list[float], batches: int) -> float | None:
    """The mean over the last round of batches, so that no single one decides."""
    last = losses[-batches:]
    return sum(last) / len(last) if last else None
