"""Scores of translations, and the result of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.recipes.running.records import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Corpus scores, from 0 to 100."""

    bleu: float
    chrf: float
    rows: int

    @property
    def mean(self) -> float:
        return math.sqrt(self.bleu * self.chrf)

    def to_json(self) -> dict[str, float]:
        return {"bleu": self.bleu, "chrf": self.chrf, "mean": self.mean, "rows": self.rows}

    def __str__(self) -> str:
        return f"BLEU {self.bleu:.2f}  chrF++ {self.chrf:.2f}  geometric mean {self.mean:.2f}  ({self.rows} rows)"


def score(translations: Sequence[str], references: Sequence[str]) -> Scores:
    """Score translations against one reference each.

    Raises:
        UsageError: different numbers of translations and references, or none.
    """
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise MissingExtra.of("sacrebleu", extra="recipes", what_for="scoring translations") from error
    if len(translations) != len(references) or not references:
        raise UsageError(
            f"{len(translations)} translations and {len(references)} references", fix="give one reference for each"
        )
    # sacrebleu takes one list per *set* of references. With one list per sentence it silently scores only the first.
    sets = [list(references)]
    bleu = BLEU().corpus_score(list(translations), sets).score
    chrf = CHRF(word_order=2).corpus_score(list(translations), sets).score
    return Scores(bleu=float(bleu), chrf=float(chrf), rows=len(translations))


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
