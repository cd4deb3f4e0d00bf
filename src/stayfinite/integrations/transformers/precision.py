"""Change the precision of a Trainer's forward pass during training: the last rung before the stop."""

from __future__ import annotations

from types import MethodType
from typing import Any, Literal

import torch
from accelerate.utils import convert_outputs_to_fp32
from torch import nn
from transformers import Trainer

from stayfinite.guard.recovering.precision import DTYPES
from stayfinite.integrations.transformers.patches import Patches
from stayfinite.integrations.transformers.seams import layers_of


def precision_of(trainer: Trainer) -> Literal["fp16", "bf16"] | None:
    """Mixed precision of the model under accelerate, if it can be changed later; else None."""
    mixed = trainer.accelerator.mixed_precision
    if mixed not in ("fp16", "bf16") or _autocasting(trainer) is None or trainer.args.torch_compile:
        return None
    return "fp16" if mixed == "fp16" else "bf16"


def change_precision(trainer: Trainer, precision: str, patches: Patches) -> None:
    """Run the model in another precision from now on. Only fp16 needs a loss scaler, so it is removed."""
    model: Any = _autocasting(trainer)
    assert model is not None, "offered only where accelerate casts"
    plain = model._original_forward.__func__
    cast = plain
    if precision != "fp32":
        cast = torch.autocast(trainer.accelerator.device.type, dtype=DTYPES[precision])(plain)
    patches.put(model, "forward", MethodType(convert_outputs_to_fp32(cast), model))
    patches.put(trainer.accelerator, "scaler", None)
    for layer in layers_of(trainer.optimizer):
        patches.put(layer, "scaler", None)


def _autocasting(trainer: Trainer) -> nn.Module | None:
    """The module whose forward pass accelerate wrapped in autocast."""
    model: Any = trainer.model
    return model if isinstance(getattr(model, "_original_forward", None), MethodType) else None
