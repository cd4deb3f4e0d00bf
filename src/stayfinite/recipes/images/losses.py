"""The loss: which answer it is, and that a pair and its swap are answered alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stayfinite.recipes.images.answers import Prompt
from stayfinite.recipes.images.batching import Batch
from stayfinite.recipes.images.pairs import LABELS, SWAPPED, Pair


class Comparison:
    """Asks a model about a batch of pairs, in both orders.

    Arguments:
        model: LLaVA-style, of transformers.
        prompt: what it is asked, and the tokens of the answers.
        weights: of the classes.
        device: where the model is.
    """

    def __init__(self, model: Any, prompt: Prompt, weights: Sequence[float], device: torch.device) -> None:
        self._model = model
        self._ids = prompt.ids.to(device)
        self._answers = torch.tensor(prompt.answers, device=device)
        self._weights = torch.tensor(weights, device=device)
        self._swap = torch.tensor(SWAPPED, device=device)
        self._device = device
        self.parts: dict[str, Tensor] = {}
        """Of the loss that was computed last: `answer` and `consistency`, the latter without its weight."""

    def logits(self, batch: Batch) -> Tensor:
        """Of each class, (2B, 3) in float32: all pairs as they are, then all of them swapped."""
        images = batch["images"].to(self._device, non_blocking=True)  # (B, 2, 3, H, W)
        both = torch.cat([images, images.flip(1)]).flatten(0, 1)  # (4B, 3, H, W)
        ids = self._ids.expand(2 * len(images), -1)  # (2B, T): one prompt for all, so nothing is padded
        output = self._model(
            input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=both, logits_to_keep=1, use_cache=False
        )
        logits: Tensor = output.logits[:, -1, self._answers]
        return logits.float()

    def labels(self, batch: Batch) -> Tensor:
        """The right class of each row of `logits`."""
        labels = batch["labels"].to(self._device, non_blocking=True)
        return torch.cat([labels, self._swap[labels]])

    def loss(self, batch: Batch) -> Tensor:
        """Weighted cross-entropy over both orders, plus the consistency term with the weight that the batch carries.

        Divided by the rows, not by the weights that they happen to have: so batches, and ranks, add up to a larger one.
        """
        logits = self.logits(batch)
        answer = F.cross_entropy(logits, self.labels(batch), weight=self._weights, reduction="sum") / len(logits)
        apart = disagreement(logits, self._swap)
        weight = batch["consistency"].to(self._device, non_blocking=True)
        self.parts = {"answer": answer.detach(), "consistency": apart.mean().detach()}
        return answer + (weight * apart).mean()


def disagreement(logits: Tensor, swap: Tensor) -> Tensor:
    """Symmetric KL divergence between the answers to a pair and to its swap, (B,) from (2B, 3).

    Half of the sum of (p - q)(log p - log q): never below 0, and finite wherever the logits are.
    """
    asked, swapped = logits.log_softmax(-1).chunk(2)
    swapped = swapped[:, swap]
    return 0.5 * ((asked.exp() - swapped.exp()) * (asked - swapped)).sum(-1)


def ramp(step: int, *, weight: float, over: int) -> float:
    """The weight of the consistency term at a step, counted from 0: up in a straight line, then level.

    A model that knows nothing answers every pair alike, which is consistent; it should learn to answer first.
    """
    return weight * min(1.0, step / over) if over > 0 else weight


def class_weights(pairs: Sequence[Pair], *, balanced: bool) -> list[float]:
    """One weight a class, 1 on average over the rows; a class that no pair has weighs nothing."""
    counts = _counted(pairs)
    if not balanced:
        return [1.0] * len(LABELS)
    present = sum(count > 0 for count in counts)
    return [sum(counts) / (present * count) if count else 0.0 for count in counts]


def classes_in_words(pairs: Sequence[Pair], weights: Sequence[float]) -> str:
    """How many rows each class has, and what it weighs."""
    words = [
        f"{name} {count:,} rows, weight {weight:.2f}" if count else f"{name} none: never learned"
        for name, count, weight in zip(LABELS, _counted(pairs), weights, strict=True)
    ]
    return f"{'; '.join(words)} (every pair in both orders)"


def _counted(pairs: Sequence[Pair]) -> list[int]:
    """Rows of each class. Each pair counts in both orders, so First and Second always weigh the same."""
    counts = [0] * len(LABELS)
    for pair in pairs:
        counts[pair.label] += 1
        counts[SWAPPED[pair.label]] += 1
    return counts
