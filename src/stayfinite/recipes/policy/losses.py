"""Policy loss: clipped ratio times advantage per token, plus a KL term."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stayfinite.recipes.chat.losses import predictions_of
from stayfinite.recipes.chat.prompts import IGNORED
from stayfinite.rl import signals
from stayfinite.rl.steering import tame_groups


def log_probabilities(logits: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Log-probability of each label (B, T) at the sampling temperature; 0 where nothing was sampled."""
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
    kl: float | Tensor = 0.0,
    reference: Tensor | None = None,
    length_normalized: bool = False,
    group_size: int | None = None,
) -> Tensor:
    """Clipped policy-gradient loss of a batch.

    Arguments:
        new: log-probabilities (B, T) of the sampled tokens under the trained model.
        old: the same under the sampling model.
        advantages: per answer (B,).
        mask: true for sampled tokens.
        clip: ratios are clipped to ``1 ± clip``.
        kl: weight of the KL term; a number, or one per answer.
        reference: log-probabilities under the KL reference.
        length_normalized: average over answers instead of tokens.
        group_size: consecutive answers per question. A group in which one token's ratio would dominate the batch is
            then dropped, but still counts in the mean.
    """
    tame = None
    if group_size is not None:
        # A replay may pass single rows, which are not groups.
        size = group_size if len(new) % group_size == 0 else 1
        tame = tame_groups((new.detach() - old).exp(), size, mask=mask).unsqueeze(1)
        new = torch.where(tame, new, old)  # before exp(): the gradient of an infinite ratio is NaN, even times 0
    ratio = (new - old).exp()
    gain = advantages.unsqueeze(1)
    losses = -torch.minimum(ratio * gain, ratio.clamp(1.0 - clip, 1.0 + clip) * gain)
    if reference is not None:
        weight = kl.unsqueeze(1) if isinstance(kl, Tensor) else kl
        losses = losses + weight * distance(new, reference)
    if tame is not None:
        losses = torch.where(tame, losses, 0.0)
    counted = losses * mask
    if length_normalized:
        return (counted.sum(1) / mask.sum(1).clamp(min=1)).mean()
    return counted.sum() / mask.sum().clamp(min=1)


def distance(new: Tensor, reference: Tensor) -> Tensor:
    """Per-token estimate of the KL to the reference: unbiased and never negative."""
    apart = reference - new
    return apart.exp() - apart - 1.0


class PolicyLoss:
    """``forward(batch) -> loss`` of a batch of sampled answers; keeps what its signals need.

    Arguments:
        temperature: of the sampling.
        clip, kl, length_normalized, group_size: see :func:`policy_loss`. A batch may override ``kl``.
    """

    def __init__(
        self,
        model: Any,
        device: torch.device,
        *,
        temperature: float,
        clip: float,
        kl: float,
        length_normalized: bool,
        group_size: int | None = None,
    ) -> None:
        self._predict = predictions_of(model, device)
        self._device, self._temperature = device, temperature
        self._clip, self._kl, self._length_normalized, self._group_size = clip, kl, length_normalized, group_size
        self._last: dict[str, Tensor] = {}

    def score(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Log-probabilities (B, T) of the answers in a batch, and their mask (B, T)."""
        logits, labels = self._predict(batch)
        return log_probabilities(logits, labels, self._temperature), labels != IGNORED

    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        new, mask = self.score(batch)
        given = {name: batch[name].to(self._device, non_blocking=True) for name in OF_SAMPLING if name in batch}
        self._last = {"logprobs": new.detach(), "mask": mask, **given}
        return policy_loss(
            new, given["old"], given["advantages"], mask, clip=self._clip, kl=given.get("kl", self._kl),
            reference=given.get("reference"), length_normalized=self._length_normalized, group_size=self._group_size,
        )  # fmt: skip

    def signals(self) -> dict[str, Tensor]:
        """Signals of the last batch, on the device: ratio, share clipped, entropy, KL."""
        last = self._last
        return signals(
            last["logprobs"], last["old"], last.get("reference"), last["advantages"], last["mask"], clip=self._clip
        )


OF_SAMPLING = ("old", "advantages", "reference", "kl")
"""Keys of a batch that come from sampling."""
