"""Result of a translation training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stayfinite.recipes.running.records import Outcome
from stayfinite.recipes.seq2seq.scores import Scores

SPENT = ("seconds", "tokens_per_second")
"""Keys known only to a process that has trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """Result of a training."""

    scores: Scores
    tokens_per_second: float

    def to_json(self, trained: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """For result.json.

        Arguments:
            trained: the earlier record, if this process only scored; its training time is kept.
        """
        rate = round(self.tokens_per_second)
        now = {"scores": self.scores.to_json(), **self.numbers(), "tokens_per_second": rate}
        return now | {name: trained[name] for name in SPENT if trained and name in trained}
