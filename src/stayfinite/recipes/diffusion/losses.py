"""Losses as means over rows, robust to empty masks, padding and batch splits.

Each row has its own mean, 0 if it has no target. The sum is divided by the expected number of rows of the mode, not by
the actual one. So there is no division by zero, and gradients are the same with any accumulation or number of
processes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stayfinite.recipes.diffusion.drawing import Batch
from stayfinite.recipes.diffusion.modes import Mode, Prediction, Schedule, amounts, shares, target
from stayfinite.state.parts import unwrapped


def smooth_bound(loss: Tensor, bound: float) -> Tensor:
    """The loss up to half the bound, then approaching the bound asymptotically. 0 means no bound.

    Unlike a clamp, its gradient never becomes 0, so that the worst row still learns. NaN and infinity pass through for
    the guard to see.
    """
    if not bound:
        return loss
    half = 0.5 * bound
    beyond = (loss - half).clamp_min(0.0) / half
    # min() instead of where(): no branch whose discarded gradient could be NaN.
    return torch.minimum(loss, loss.new_tensor(half)) + half * beyond / (1.0 + beyond)


def masked_cross_entropy(logits: Tensor, ids: Tensor, counted: Tensor) -> Tensor:
    """Mean over counted tokens per row; 0, still attached to the graph, for a row without any.

    Arguments:
        logits: (B, L, V).
        ids: (B, L).
        counted: (B, L) hidden tokens that are not padding.
    """
    each = F.cross_entropy(logits.float().transpose(1, 2), ids, reduction="none")  # (B, L)
    # Select instead of multiply: 0 x inf is NaN.
    return torch.where(counted, each, 0.0).sum(1) / counted.sum(1).clamp_min(1)


def squared_error(said: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared error per row, in float32."""
    return (said.float() - wanted.float()).square().flatten(1).mean(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights and bound of the losses."""

    text: float = 1.0
    latent: float = 0.1
    bound: float = 0.0


class Objective:
    """``objective(batch) -> loss``. Everything random is in the batch.

    Arguments:
        model: may be wrapped for several processes.
        latest: receives the detached losses by name.
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
        self._schedule, self._prediction, self.weights = schedule, prediction, weights
        self.shares = shares(mode)

    def __call__(self, batch: Batch) -> Tensor:
        """Weighted sum of the losses of a batch."""
        text, latent = self.rows(batch)
        parts: dict[str, Tensor] = {}
        total = text.new_zeros(())
        weights = {"text": self.weights.text, "latent": self.weights.latent}
        for (name, weight), losses, share in zip(weights.items(), (text, latent), self.shares, strict=True):
            if share:
                parts[name] = smooth_bound(losses, self.weights.bound).sum() / (share * len(losses))
                total = total + weight * parts[name]
        self._latest({name: part.detach() for name, part in parts.items()})
        return total

    def rows(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Text loss and latent loss per row, (B) each; 0 if a row has none."""
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
