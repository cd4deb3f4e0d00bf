"""Read the inputs of `plan_precision`: card, batches, formats."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.errors import UsageError
from stayfinite.precision.formats import BF16, E4M3, FP16, FP32, TF32
from stayfinite.rules.cards import Card, card_asked_for, card_named

MOST_BATCHES = 4
UNNAMED_CARD = "H100"
"""Card assumed when none is named and none is present."""


def card_of(gpu: str | None, model: nn.Module) -> tuple[Card, bool]:
    """The card to plan for, and whether to time on it."""
    on_cuda = next((p.is_cuda for p in model.parameters()), False)
    if gpu is not None and gpu.lower() != "this":
        return card_asked_for(gpu), False
    if on_cuda:
        name = torch.cuda.get_device_name()
        found = card_named(name)
        if found is None:
            raise UsageError(f"unknown GPU {name}", fix="name a similar one: --gpu H100")
        return found, gpu is not None
    if gpu is not None:
        raise UsageError("--gpu this: the model is not on a GPU", fix="name the GPU to plan for: --gpu H100")
    return card_asked_for(UNNAMED_CARD), False


def batches_of(batch: Any) -> list[Any]:
    """The batches to measure: the one passed, or the first few of a list or loader."""
    if isinstance(batch, Tensor | dict) or hasattr(batch, "items"):
        return [batch]
    several = isinstance(batch, list) and batch and not isinstance(batch[0], Tensor | int | float)
    if (not several and batch_items(batch)) or not isinstance(batch, Iterable):
        return [batch]
    found = list(islice(batch, MOST_BATCHES))
    if not found:
        raise UsageError("no batch found", fix="pass a batch, a list of batches, or a loader")
    return found


def formats_of(card: Card, formats: Sequence[str] | None) -> tuple[str, ...]:
    """The formats to consider: the ones passed, else all that the card supports."""
    known = {"fp32": FP32, "tf32": TF32, "bf16": BF16, "fp16": FP16, "fp8": E4M3}
    odd = [kind for kind in formats or () if kind not in known]
    if odd:
        raise UsageError(f"unknown format {odd[0]!r}", fix=f"of {', '.join(known)}")
    if formats is not None:
        return tuple(formats)
    return tuple(kind for kind, format in known.items() if format.on(card))
