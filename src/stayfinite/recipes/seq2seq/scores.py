"""BLEU and chrF++ by sacrebleu, and their geometric mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stayfinite.errors import MissingExtra, UsageError


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
