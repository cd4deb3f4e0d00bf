"""Evaluate held-out pairs in both orders: accuracy, and consistency under the swap."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import default_collate

from stayfinite.errors import UsageError
from stayfinite.recipes.images.batching import Batch, PairRows
from stayfinite.recipes.images.losses import Comparison
from stayfinite.recipes.images.pairs import LABELS, SWAPPED
from stayfinite.recipes.running.processes import Place
from stayfinite.state.parts import evaluating

Asked = tuple[list[list[float]], list[int]] | str
"""Logits and labels of a pair and its swap, or the error of one of its images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores on the held-out pairs, each in both orders."""

    accuracy: float
    per_class: dict[str, float]
    """NaN for a class without pairs."""
    swap_consistency: float
    """Share of pairs whose swap gets the swapped answer, right or wrong."""
    loss: float
    """Cross-entropy without class weights."""
    confusion: list[list[int]]
    """Counts by true class (row) and answer (column)."""
    pairs: int
    unreadable: tuple[str, ...] = ()
    """Errors of images whose pairs were skipped."""

    @property
    def balanced(self) -> float:
        """Mean accuracy over classes."""
        known = [value for value in self.per_class.values() if math.isfinite(value)]
        return sum(known) / len(known) if known else float("nan")

    def numbers(self) -> dict[str, float]:
        """For a log line."""
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
    autocast: Callable[[], AbstractContextManager[Any]],
    place: Place,
) -> Scores:
    """Evaluate every pair. Restores the model's mode and draws no random numbers.

    Arguments:
        place: of this process. Ranks share the pairs, and all get the total scores.
    """

    def ask(chosen: list[int]) -> list[Asked]:
        found: list[Asked] = []
        for start in range(0, len(chosen), batch_size):
            found += _asked(comparison, rows, chosen[start : start + batch_size], autocast)
        return found

    with evaluating(model):
        asked = place.shared_out(range(len(rows)), ask, size=lambda _: 1)
    readable = [each for each in asked if not isinstance(each, str)]
    unreadable = tuple(dict.fromkeys(each for each in asked if isinstance(each, str)))
    if not readable:
        raise UsageError(
            f"no held-out pair could be read: {next(iter(unreadable), 'there is none')}", fix="fix the images"
        )
    logits, labels = (torch.tensor(part) for part in zip(*readable, strict=True))
    return score(logits, labels, unreadable)


def score(logits: Tensor, labels: Tensor, unreadable: tuple[str, ...] = ()) -> Scores:
    """Scores from the logits (N, 2, 3) and labels (N, 2) of pairs and their swaps."""
    # Non-finite logits are no answer; argmax would make them the first class.
    finite = logits.isfinite().all(-1)
    answers = torch.where(finite, logits.nan_to_num().argmax(-1), -1)
    right = answers == labels
    confusion = torch.bincount((3 * labels + answers)[finite], minlength=9).view(3, 3)
    # The mean of nothing is NaN.
    per_class = {name: float(right[labels == number].float().mean()) for number, name in enumerate(LABELS)}
    swap = torch.tensor([*SWAPPED, -2])  # no answer never matches
    return Scores(
        accuracy=float(right.float().mean()), per_class=per_class,
        swap_consistency=float((answers[:, 1] == swap[answers[:, 0]]).float().mean()),
        loss=float(F.cross_entropy(logits.flatten(0, 1), labels.flatten())), confusion=confusion.tolist(),
        pairs=len(labels), unreadable=unreadable,
    )  # fmt: skip


def _asked(
    comparison: Comparison, rows: PairRows, chosen: Sequence[int], autocast: Callable[[], AbstractContextManager[Any]]
) -> list[Asked]:
    found: list[Batch | str] = []
    for index in chosen:
        try:
            found.append(rows[index])
        except UsageError as error:
            found.append(error.message)
    batch = [each for each in found if not isinstance(each, str)]
    if not batch:
        return [each for each in found if isinstance(each, str)]
    together = default_collate(batch)
    with autocast():
        logits = comparison.logits(together)
    answered = zip(
        torch.stack(logits.chunk(2), 1).tolist(),  # (B, 2, 3)
        torch.stack(comparison.labels(together).chunk(2), 1).tolist(),  # (B, 2)
        strict=True,
    )
    return [each if isinstance(each, str) else next(answered) for each in found]
