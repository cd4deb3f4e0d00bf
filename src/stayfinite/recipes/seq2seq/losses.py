"""Forward pass: batch to loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from stayfinite.recipes.seq2seq.batching import IGNORED


def loss_of(model: Any, smoothing: float = 0.0) -> Callable[[dict[str, Tensor]], Tensor]:
    """A function from a batch to the mean cross-entropy of its target tokens.

    Arguments:
        model: an encoder-decoder, possibly under DDP.
        smoothing: label smoothing.
    """
    whole = getattr(model, "module", model)

    def compute_loss(batch: dict[str, Tensor]) -> Tensor:
        device = next(model.parameters()).device
        batch = {name: item.to(device, non_blocking=True) for name, item in batch.items()}
        labels = batch["labels"]
        # Passing labels would make the model compute a second loss.
        logits = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=whole.prepare_decoder_input_ids_from_labels(labels),
            use_cache=False,  # avoids copying keys and values of all layers
        ).logits  # (B, T, V)
        summed = F.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing,
            reduction="sum",
        )  # fmt: skip
        return summed / (labels != IGNORED).sum().clamp(min=1)  # a rank may have only an unlabeled row

    return compute_loss
