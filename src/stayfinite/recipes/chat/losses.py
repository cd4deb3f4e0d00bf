"""The loss of a batch: cross-entropy over the tokens of the answers, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stayfinite.recipes.chat.packing import has_dropout, is_packable, packed
from stayfinite.recipes.chat.prompts import IGNORED


def loss_of(model: Any, device: torch.device) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """``forward(batch) -> loss``, the mean over the supervised tokens.

    On a CPU, where the time goes with the tokens, the beginning that all rows share is computed once.
    """
    predict = predictions_of(model, device)
    base = _inner(model)
    packable = device.type == "cpu" and is_packable(base)
    dropping = packable and has_dropout(base)

    def compute_loss(batch: Mapping[str, Tensor]) -> Tensor:
        row = packed(batch, base.config) if packable and not (dropping and model.training) else None
        logits, expected = predict(batch) if row is None else (model(**row.given, use_cache=False).logits, row.labels)
        return F.cross_entropy(logits.flatten(0, 1).float(), expected.flatten(), ignore_index=IGNORED)

    return compute_loss


def predictions_of(model: Any, device: torch.device) -> Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor]]:
    """``predict(batch) -> logits (B, T, V), labels (B, T)``, each logit beside the label that it predicts.

    Logits are computed only from where the first answer of the batch begins: with a large vocabulary they are most of
    the memory.
    """
    sparing = "logits_to_keep" in inspect.signature(_inner(model).forward).parameters

    def predict(batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        labels = batch["labels"]
        kept = _kept(labels) if sparing else labels.shape[1]
        options = {"logits_to_keep": kept} if sparing else {}
        given = {name: batch[name].to(device, non_blocking=True) for name in ("input_ids", "attention_mask")}
        logits = model(**given, **options).logits  # (B, kept, V)
        return logits[:, :-1], labels[:, labels.shape[1] - kept + 1 :].to(device, non_blocking=True)

    return predict


def _inner(model: Any) -> Any:
    """The base itself, without the wrapper of several processes and without the adapter."""
    inner = model.module if hasattr(model, "module") else model
    return inner.get_base_model() if hasattr(inner, "get_base_model") else inner


def _kept(labels: Tensor) -> int:
    """Places at the end of which the logits are needed: from one before the first supervised one."""
    places = (labels[:, 1:] != IGNORED).any(0).nonzero()
    return labels.shape[1] - int(places[0]) if len(places) else labels.shape[1]
