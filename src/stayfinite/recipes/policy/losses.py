"""The loss of sampled answers: clipped ratio times advantage, token by token, and a pull to the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from stayfinite.recipes.chat.losses import predictions_of
from stayfinite.recipes.chat.prompts import IGNORED


def log_probabilities(logits: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Log-probability of each label (B, T) at the temperature of the sampling; 0 where nothing was sampled."""
    scaled = logits.float() / temperature
    chosen = scaled.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(labels != IGNORED, chosen - scaled.logsumexp(-1), 0.0)


def policy_loss(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float,
    kl: float = 0.0,
    reference: Tensor | None = None,
    length_normalised: bool = False,
) -> Tensor:
    """The clipped policy-gradient loss of a batch.

    Arguments:
        new: log-probabilities (B, T) of the sampled tokens, by the model that is trained.
        old: by the model that sampled them.
        advantages: of each answer (B,).
        mask: true where a token was sampled.
        clip: a ratio beyond ``1 ± clip`` earns nothing more.
        kl: weight of the distance to the reference.
        reference: log-probabilities by the model that the distance is measured from.
        length_normalised: every answer counts the same; otherwise every token does.
    """
    ratio = (new - old).exp()
    gain = advantages.unsqueeze(1)
    losses = -torch.minimum(ratio * gain, ratio.clamp(1.0 - clip, 1.0 + clip) * gain)
    if reference is not None:
        losses = losses + kl * distance(new, reference)
    counted = losses * mask
    if length_normalised:
        return (counted.sum(1) / mask.sum(1).clamp(min=1)).mean()
    return counted.sum() / mask.sum().clamp(min=1)


def distance(new: Tensor, reference: Tensor) -> Tensor:
    """KL to the reference, estimated at each sampled token: unbiased, and never below 0."""
    apart = reference - new
    return apart.exp() - apart - 1.0


def scores_of(
    model: Any, device: torch.device, temperature: float
) -> Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor]]:
    """``score(batch) -> log-probabilities (B, T), mask (B, T)`` of the answers in a batch."""
    predict = predictions_of(model, device)

    def score(batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits, labels = predict(batch)
        return log_probabilities(logits, labels, temperature), labels != IGNORED

    return score


def policy_loss_of(
    model: Any, device: torch.device, *, temperature: float, clip: float, kl: float, length_normalised: bool
) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """``forward(batch) -> loss`` of a batch of sampled answers."""
    score = scores_of(model, device, temperature)

    def compute_loss(batch: Mapping[str, Tensor]) -> Tensor:
        new, mask = score(batch)
        given = {name: batch[name].to(device, non_blocking=True) for name in batch if name not in ROW}
        return policy_loss(
            new, given["old"], given["advantages"], mask, clip=clip, kl=kl, reference=given.get("reference"),
            length_normalised=length_normalised,
        )  # fmt: skip

    return compute_loss


ROW = ("input_ids", "attention_mask", "labels")
"""What a batch of sampled answers has in common with one of right answers."""
