"""The losses: each a mean over rows that no empty mask, no padding and no splitting of the batch can upset.

Every row has its own mean, and a row that has nothing to say counts 0. The sum over rows is divided by what the mode
lets one expect, never by what a batch happens to hold. So there is no division by zero, and the gradient of a step is
the same in one batch or in several that are accumulated, in one process or in many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stayfinite.recipes.diffusion.drawing import Batch
from stayfinite.recipes.diffusion.modes import Mode, shares
from stayfinite.recipes.diffusion.prediction import Prediction, target
from stayfinite.recipes.diffusion.schedules import Schedule, amounts
from stayfinite.state.parts import unwrapped


def smooth_bound(loss: Tensor, bound: float) -> Tensor:
    """The loss itself up to half of the bound, then ever slower towards the bound, which it never reaches.

    A hard clamp has no gradient beyond its bound: the row that is worst learns nothing. This one's gets small, and is
    never 0. NaN and infinity are not hidden: they stay what the guard has to see. A bound of 0 is none.
    """
    if not bound:
        return loss
    half = 0.5 * bound
    beyond = (loss - half).clamp_min(0.0) / half
    # min() and not where(): its gradient has no branch that could be NaN and is thrown away.
    return torch.minimum(loss, loss.new_tensor(half)) + half * beyond / (1.0 + beyond)


def masked_cross_entropy(logits: Tensor, ids: Tensor, counted: Tensor) -> Tensor:
    """For each row the mean over the tokens that count; 0, still attached, for a row in which none does.

    Arguments:
        logits: (B, L, V).
        ids: (B, L).
        counted: (B, L) where a token was hidden and is no padding.
    """
    each = F.cross_entropy(logits.float().transpose(1, 2), ids, reduction="none")  # (B, L)
    # Selected, not multiplied: 0 x inf is NaN.
    return torch.where(counted, each, 0.0).sum(1) / counted.sum(1).clamp_min(1)


def squared_error(said: Tensor, wanted: Tensor) -> Tensor:
    """For each row the mean over positions and channels, in float32."""
    return (said.float() - wanted.float()).square().flatten(1).mean(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each loss counts, and where it is bounded."""

    text: float = 1.0
    latent: float = 0.1
    bound: float = 0.0


class Objective:
    """``objective(batch) -> loss``: everything random is in the batch.

    Arguments:
        model: called with a noisy pair; may be wrapped for several processes.
        mode, schedule, prediction: of the training.
        weights: of the losses.
        latest: is told the two losses, by name, without their graph.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mode: Mode,
        schedule: Schedule,
        prediction: Prediction,
        weights: Weights,
        latest: Callable[[dict[str, Tensor]], None] = lambda _: None,
    ) -> None:
        self._model, self._latest = model, latest
        inner: Any = unwrapped(model)
        self._hidden_token = int(inner.hidden_token)
        self._schedule, self._prediction, self._weights = schedule, prediction, weights
        self._shares = shares(mode)

    def __call__(self, batch: Batch) -> Tensor:
        """The weighted sum of the losses of a batch."""
        text, latent = self.rows(batch)
        weights, (text_share, latent_share) = self._weights, self._shares
        parts: dict[str, Tensor] = {}
        total = text.new_zeros(())
        if text_share:
            parts["text"] = smooth_bound(text, weights.bound).sum() / (text_share * len(text))
            total = total + weights.text * parts["text"]
        if latent_share:
            parts["latent"] = smooth_bound(latent, weights.bound).sum() / (latent_share * len(latent))
            total = total + weights.latent * parts["latent"]
        self._latest({name: part.detach() for name, part in parts.items()})
        return total

    def rows(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The text loss and the latent loss of each row, (B) each; 0 where a row has none."""
        device = next(self._model.parameters()).device
        held = {name: item.to(device, non_blocking=True) for name, item in batch.items()}
        signal, sigma = (each[:, None, None] for each in amounts(self._schedule, held["latent_time"]))
        clean = ~held["has_latent_loss"][:, None, None]
        noisy = torch.where(clean, held["latent"], signal * held["latent"] + sigma * held["noise"])
        ids = held["ids"].masked_fill(held["covered"], self._hidden_token)
        logits, said = self._model(ids, held["mask"], noisy, held["text_time"], held["latent_time"])
        text = masked_cross_entropy(logits, held["ids"], held["covered"])
        wanted = target(self._prediction, held["latent"], held["noise"], signal, sigma)
        return text, torch.where(held["has_latent_loss"], squared_error(said, wanted), 0.0)
