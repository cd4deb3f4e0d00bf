"""The loss of sampled answers: clipped ratio times advantage, token by token, and a pull to the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from stayfinite.recipes.chat.losses import predictions_of
from stayfinite.recipes.chat.prompts import IGNORED
from stayfinite.rl import signals


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
    length_normalized: bool = False,
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
        length_normalized: every answer counts the same; otherwise every token does.
    """
    ratio = (new - old).exp()
    gain = advantages.unsqueeze(1)
    losses = -torch.minimum(ratio * gain, ratio.clamp(1.0 - clip, 1.0 + clip) * gain)
    if reference is not None:
        losses = losses + kl * distance(new, reference)
    counted = losses * mask
    if length_normalized:
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


class PolicyLoss:
    """``forward(batch) -> loss`` of a batch of sampled answers; remembers what its signals are made of.

    Arguments:
        temperature: of the sampling.
        clip, kl, length_normalized: as of :func:`policy_loss`.
    """

    def __init__(
        self, model: Any, device: torch.device, *, temperature: float, clip: float, kl: float, length_normalized: bool
    ) -> None:
        self.score = scores_of(model, device, temperature)
        self._device = device
        self._clip, self._kl, self._length_normalized = clip, kl, length_normalized
        self._last: dict[str, Tensor] = {}

    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        new, mask = self.score(batch)
        given = {name: batch[name].to(self._device, non_blocking=True) for name in OF_SAMPLING if name in batch}
        self._last = {"logprobs": new.detach(), "mask": mask, **given}
        return policy_loss(
            new, given["old"], given["advantages"], mask, clip=self._clip, kl=self._kl,
            reference=given.get("reference"), length_normalized=self._length_normalized,
        )  # fmt: skip

    def signals(self) -> dict[str, Tensor]:
        """Those of the batch that was computed last: ratio, share clipped, entropy, KL; on the device."""
        last = self._last
        return signals(
            last["logprobs"], last["old"], last.get("reference"), last["advantages"], last["mask"], clip=self._clip
        )


OF_SAMPLING = ("old", "advantages", "reference")
"""What a batch of sampled answers has beside its tokens."""
