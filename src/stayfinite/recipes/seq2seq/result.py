"""What the training of a translation came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stayfinite.recipes.running.outcome import Outcome
from stayfinite.recipes.seq2seq.scores import Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """What a training came to."""

    scores: Scores
    tokens_per_second: float

    def to_json(self) -> dict[str, Any]:
        """For result.json."""
        rate = round(self.tokens_per_second)
        return {"scores": self.scores.to_json(), **self.numbers(), "tokens_per_second": rate}
