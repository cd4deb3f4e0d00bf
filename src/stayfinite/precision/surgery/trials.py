"""A few steps of training in fp16 autocast with a loss scaler, or in fp32, over the same batches."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn

from stayfinite.precision.surgery.keeping import keep_in_range
from stayfinite.precision.surgery.result import Trial, matching_groups
from stayfinite.state.parts import evaluating

SEARCH = 60
"""Skipped steps after which there is no loss scale: from 2**16 it is then below what a float of 32 bits holds well."""


def train_a_little(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    *,
    steps: int,
    precision: Literal["fp16", "fp32"],
    exponents: Mapping[str, int],
    network: str,
    lr: float = 1e-4,
    keep: bool = False,
) -> Trial:
    """Train a copy of the model, without dropout; the model itself is not touched.

    Arguments:
        steps: updates of the weights; what the scaler skips for its scale comes on top.
        exponents: of the parameters that were rescaled; none for the original.
        lr: the original's, for AdamW; the rescaled network gets groups that match it.
        keep: with :func:`keep_in_range`.
    """
    model = copy.deepcopy(model)
    device = next(model.parameters()).device.type
    optimizer = torch.optim.AdamW(matching_groups(model, exponents, lr=lr), lr=lr)
    kept = keep_in_range(model) if keep else None
    half = precision == "fp16"
    scaler = torch.amp.GradScaler(device, enabled=half)
    overflows = skipped = taken = 0
    last_skip: int | None = None
    losses: list[float] = []
    with evaluating(model):
        while taken + overflows < steps and skipped < SEARCH:
            with torch.amp.autocast(device, dtype=torch.float16, enabled=half):
                loss = model(**batches[(taken + overflows) % len(batches)]).loss
            value = float(loss.detach())
            scale = scaler.get_scale()
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if not math.isfinite(value):
                overflows += 1
            elif half and scaler.get_scale() < scale:
                last_skip = taken + overflows
                skipped += 1  # the same batch comes again, at a lower scale
            else:
                taken += 1
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
        last_skip=last_skip,
        scaled=len(kept.scaled) if kept else 0,
    )


def _end(losses: list[float], batches: int) -> float | None:
    """The mean over the last round of batches, so that no single one decides."""
    last = losses[-batches:]
    return sum(last) / len(last) if last else None
