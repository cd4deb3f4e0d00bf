"""What the training of a translation came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stayfinite.recipes.running.outcome import Outcome
from stayfinite.recipes.seq2seq.scores import Scores

SPENT = ("seconds", "tokens_per_second")
"""What only a process knows that has trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """What a training came to."""

    scores: Scores
    tokens_per_second: float

    def to_json(self, trained: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """For result.json.

        Arguments:
            trained: what stood there, where this process took no step and only scored: the time of the training stays.
        """
        rate = round(self.tokens_per_second)
        now = {"scores": self.scores.to_json(), **self.numbers(), "tokens_per_second": rate}
        return now | {name: trained[name] for name in SPENT if trained and name in trained}
