"""Loss, perplexity and accuracy on held-out texts."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from stayfinite.recipes.language.blocks import Blocks
from stayfinite.recipes.language.masking import Masking
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.batching import IGNORED, Example, Padding


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Scores over all target tokens."""

    loss: float
    accuracy: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss); infinite if it overflows."""
        return math.exp(self.loss) if math.isfinite(self.loss) and self.loss < 700 else math.inf

    def to_json(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.accuracy, "tokens": self.tokens}

    def __str__(self) -> str:
        return (
            f"validation loss {self.loss:.4f}  perplexity {self.perplexity:.2f}  accuracy {self.accuracy:.1%} of "
            f"{self.tokens:,} tokens"
        )


def validation_examples(blocks: Blocks, masking: Masking, most: int | None) -> list[Example]:
    """Validation examples with fixed masks, evenly spaced if there are more than ``most``."""
    count = len(blocks)
    wanted = count if most is None else min(most, count)
    return [masking(blocks[number * count // wanted], number) for number in range(wanted)]


def evaluate(
    model: Any,
    examples: list[Example],
    padding: Padding,
    batch_size: int,
    *,
    autocast: Callable[[], AbstractContextManager[Any]],
    place: Place,
) -> Evaluation:
    """Evaluate. Draws no random numbers, so that training is unaffected.

    Arguments:
        place: of this process. Ranks share the examples, and all get the total scores.
    """
    examples = sorted(examples, key=lambda example: example.length)[place.rank :: place.count]
    training = model.training
    device = next(model.parameters()).device
    model.eval()
    total = torch.zeros((), dtype=torch.float64)
    right = tokens = 0
    try:
        for start in range(0, len(examples), batch_size):
            batch = {name: item.to(device) for name, item in padding(examples[start : start + batch_size]).items()}
            with torch.inference_mode(), autocast():
                logits = model(**batch).logits.float()  # (B, T, V)
            labels = batch["labels"]
            asked = labels != IGNORED
            total += F.cross_entropy(logits[asked], labels[asked], reduction="sum").double().cpu()
            right += int((logits.argmax(-1) == labels)[asked].sum())
            tokens += int(asked.sum())
    finally:
        model.train(training)
    loss, hits, count = place.total([float(total), right, tokens])
    return Evaluation(loss=loss / max(1, count), accuracy=hits / max(1, count), tokens=int(count))
