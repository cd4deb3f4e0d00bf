"""What the training of a translation came to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.recipes.seq2seq.scores import Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a training came to."""

    scores: Scores
    first_loss: float
    last_loss: float
    steps: int
    seconds: float
    tokens_per_second: float
    directory: Path

    def to_json(self) -> dict[str, Any]:
        """By name; where it lies goes without saying."""
        return {
            "scores": self.scores.to_json(), "steps": self.steps, "seconds": round(self.seconds, 1),
            "first_loss": self.first_loss, "last_loss": self.last_loss,
            "tokens_per_second": round(self.tokens_per_second),
        }  # fmt: skip
