"""Held-out pairs, asked in both orders: how often the answer is right, and how often it survives the swap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.recipes.images.batching import Batch, PairRows, stacked
from stayfinite.recipes.images.losses import Comparison
from stayfinite.recipes.images.pairs import LABELS, SWAPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How well the held-out pairs were answered; each counts in both orders."""

    accuracy: float
    per_class: dict[str, float]
    """NaN for a class that no pair has."""
    swap_consistency: float
    """Share of the pairs to which the swap gets the swapped answer, right or wrong."""
    loss: float
    """Cross-entropy, without class weights."""
    confusion: list[list[int]]
    """How often each class (row) was answered as each (column)."""
    pairs: int
    unreadable: tuple[str, ...] = ()
    """What was wrong with images of pairs that could not be asked."""

    @property
    def balanced(self) -> float:
        """Accuracy, each class counting the same."""
        known = [value for value in self.per_class.values() if math.isfinite(value)]
        return sum(known) / len(known) if known else float("nan")

    def numbers(self) -> dict[str, float]:
        """For a line of a log."""
        named = {f"accuracy_{name.lower()}": value for name, value in self.per_class.items()}
        return {
            "accuracy": self.accuracy, "balanced_accuracy": self.balanced, **named,
            "swap_consistency": self.swap_consistency, "val_loss": self.loss,
        }  # fmt: skip

    def __str__(self) -> str:
        classes = ", ".join(f"{name} {value:.1%}" for name, value in self.per_class.items() if math.isfinite(value))
        lost = f"; {len(self.unreadable)} images could not be read" if self.unreadable else ""
        return (
            f"accuracy {self.accuracy:.1%} ({classes}), {self.swap_consistency:.1%} consistent under the swap, "
            f"loss {self.loss:.4f}, {self.pairs:,} pairs{lost}"
        )


@torch.inference_mode()
def evaluate(
    comparison: Comparison,
    model: Any,
    rows: PairRows,
    *,
    batch_size: int,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Scores:
    """Ask about every pair. The model is in the mode it was in afterwards, and no random number is drawn."""
    training = model.training
    model.eval()
    logits: list[Tensor] = []
    labels: list[Tensor] = []
    unreadable: dict[str, None] = {}
    try:
        for start in range(0, len(rows), batch_size):
            batch = _readable(rows, range(start, min(start + batch_size, len(rows))), unreadable)
            if batch is None:
                continue
            with autocast():
                found = comparison.logits(batch).cpu()
            logits.append(torch.stack(found.chunk(2), 1))  # (B, 2, 3)
            labels.append(torch.stack(comparison.labels(batch).cpu().chunk(2), 1))  # (B, 2)
    finally:
        model.train(training)
    if not logits:
        raise UsageError(
            f"no held-out pair could be read: {next(iter(unreadable), 'there is none')}", fix="mend the images"
        )
    return score(torch.cat(logits), torch.cat(labels), tuple(unreadable))


def score(logits: Tensor, labels: Tensor, unreadable: tuple[str, ...] = ()) -> Scores:
    """Scores from the logits (N, 2, 3) and labels (N, 2) of pairs and their swaps."""
    # An answer that is not a number is none: it must not look like the first class.
    finite = logits.isfinite().all(-1)
    answers = torch.where(finite, logits.nan_to_num().argmax(-1), -1)
    right = answers == labels
    confusion = torch.zeros(3, 3, dtype=torch.long)
    known = finite.flatten()
    confusion.index_put_(
        (labels.flatten()[known], answers.flatten()[known]), torch.ones(1, dtype=torch.long), accumulate=True
    )
    per_class = {}
    for number, name in enumerate(LABELS):
        chosen = labels == number
        per_class[name] = float(right[chosen].float().mean()) if bool(chosen.any()) else float("nan")
    swap = torch.tensor([*SWAPPED, -2])  # no answer agrees with nothing
    return Scores(
        accuracy=float(right.float().mean()), per_class=per_class,
        swap_consistency=float((answers[:, 1] == swap[answers[:, 0]]).float().mean()),
        loss=float(F.cross_entropy(logits.flatten(0, 1), labels.flatten())), confusion=confusion.tolist(),
        pairs=len(labels), unreadable=unreadable,
    )  # fmt: skip


def _readable(rows: PairRows, chosen: Sequence[int], unreadable: dict[str, None]) -> Batch | None:
    found = []
    for index in chosen:
        try:
            found.append(rows[index])
        except UsageError as error:
            unreadable[error.message] = None
    return stacked(found) if found else None
