"""The loss of a batch: cross-entropy over the tokens of the answers, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stayfinite.recipes.chat.prompts import IGNORED


def loss_of(model: Any, device: torch.device) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """``forward(batch) -> loss``, the mean over the supervised tokens."""
    predict = predictions_of(model, device)

    def compute_loss(batch: Mapping[str, Tensor]) -> Tensor:
        logits, expected = predict(batch)
        return F.cross_entropy(logits.flatten(0, 1).float(), expected.flatten(), ignore_index=IGNORED)

    return compute_loss


def predictions_of(model: Any, device: torch.device) -> Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor]]:
    """``predict(batch) -> logits (B, T, V), labels (B, T)``, each logit beside the label that it predicts.

    Logits are computed only from where the first answer of the batch begins: with a large vocabulary they are most of
    the memory.
    """
    inner = model.module if hasattr(model, "module") else model
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    sparing = "logits_to_keep" in inspect.signature(inner.forward).parameters

    def predict(batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        labels = batch["labels"]
        kept = _kept(labels) if sparing else labels.shape[1]
        options = {"logits_to_keep": kept} if sparing else {}
        given = {name: batch[name].to(device, non_blocking=True) for name in ("input_ids", "attention_mask")}
        logits = model(**given, **options).logits  # (B, kept, V)
        return logits[:, :-1], labels[:, labels.shape[1] - kept + 1 :].to(device, non_blocking=True)

    return predict


def _kept(labels: Tensor) -> int:
    """Places at the end of which the logits are needed: from one before the first supervised one."""
    places = (labels[:, 1:] != IGNORED).any(0).nonzero()
    return labels.shape[1] - int(places[0]) if len(places) else labels.shape[1]
