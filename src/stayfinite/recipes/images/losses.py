"""Loss: the right answer, plus agreement between a pair and its swap."""

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
    """Runs a model on a batch of pairs in both orders.

    Arguments:
        model: LLaVA-style, from transformers.
        prompt: the question and the answer tokens.
        weights: of the classes.
    """

    def __init__(self, model: Any, prompt: Prompt, weights: Sequence[float], device: torch.device) -> None:
        self._model = model
        self._ids = prompt.ids.to(device)
        self._answers = torch.tensor(prompt.answers, device=device)
        self._weights = torch.tensor(weights, device=device)
        self._swap = torch.tensor(SWAPPED, device=device)
        self._device = device
        self.parts: dict[str, Tensor] = {}
        """Parts of the last loss: `answer` and the unweighted `consistency`."""

    def logits(self, batch: Batch) -> Tensor:
        """Class logits (2B, 3) in float32: all pairs, then all swapped."""
        images = batch["images"].to(self._device, non_blocking=True)  # (B, 2, 3, H, W)
        both = torch.cat([images, images.flip(1)]).flatten(0, 1)  # (4B, 3, H, W)
        ids = self._ids.expand(2 * len(images), -1)  # (2B, T): one prompt for all, so no padding
        output = self._model(
            input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=both, logits_to_keep=1, use_cache=False
        )
        logits: Tensor = output.logits[:, -1, self._answers]
        return logits.float()

    def labels(self, batch: Batch) -> Tensor:
        """The true class of each row of `logits`."""
        labels = batch["labels"].to(self._device, non_blocking=True)
        return torch.cat([labels, self._swap[labels]])

    def loss(self, batch: Batch) -> Tensor:
        """Weighted cross-entropy over both orders, plus the consistency term.

        Divided by the number of rows rather than the sum of weights, so that batches and ranks add up.
        """
        logits = self.logits(batch)
        answer = F.cross_entropy(logits, self.labels(batch), weight=self._weights, reduction="sum") / len(logits)
        apart = disagreement(logits, self._swap)
        weight = batch["consistency"].to(self._device, non_blocking=True)
        self.parts = {"answer": answer.detach(), "consistency": apart.mean().detach()}
        return answer + (weight * apart).mean()


def disagreement(logits: Tensor, swap: Tensor) -> Tensor:
    """Symmetric KL divergence between the answers to a pair and to its swap: (2B, 3) -> (B,).

    Half the sum of (p - q)(log p - log q): never negative, and finite for finite logits.
    """
    asked, swapped = logits.log_softmax(-1).chunk(2)
    swapped = swapped[:, swap]
    return 0.5 * ((asked.exp() - swapped.exp()) * (asked - swapped)).sum(-1)


def ramp(step: int, *, weight: float, over: int) -> float:
    """Weight of the consistency term at a step, counted from 0: linear ramp, then constant.

    An untrained model is consistent without knowing anything, so it should learn to answer first.
    """
    return weight * min(1.0, step / over) if over > 0 else weight


def class_weights(pairs: Sequence[Pair], *, balanced: bool) -> list[float]:
    """Weight per class, with mean 1 over the rows; 0 for a class without pairs."""
    counts = _counted(pairs)
    if not balanced:
        return [1.0] * len(LABELS)
    present = sum(count > 0 for count in counts)
    return [sum(counts) / (present * count) if count else 0.0 for count in counts]


def classes_in_words(pairs: Sequence[Pair], weights: Sequence[float]) -> str:
    """Rows and weight of each class, in words."""
    words = [
        f"{name} {count:,} rows, weight {weight:.2f}" if count else f"{name} none: never learned"
        for name, count, weight in zip(LABELS, _counted(pairs), weights, strict=True)
    ]
    return f"{'; '.join(words)} (every pair in both orders)"


def _counted(pairs: Sequence[Pair]) -> list[int]:
    """Rows per class. Each pair counts in both orders, so First and Second are equal."""
    counts = [0] * len(LABELS)
    for pair in pairs:
        counts[pair.label] += 1
        counts[SWAPPED[pair.label]] += 1
    return counts
