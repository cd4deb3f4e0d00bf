"""Translate held-out pairs and score them, without affecting training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.recipes.models import in_portions
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.running.recording import as_written
from stayfinite.recipes.running.records import Outcome
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.seq2seq.models import answering

WIDTH = 160
"""Characters shown of a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Settings of an evaluation.

    Arguments:
        prefix: prepended to every source.
        limits: tokens of source and target.
        batch_size: texts translated at a time.
    """

    tokenizer: Any
    prefix: str
    limits: tuple[int, int]
    batch_size: int

    def translate(
        self,
        model: Any,
        sources: Sequence[str],
        *,
        beams: int,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[str]:
        """One translation per source, in order. Leaves the random state unchanged."""
        device = next(model.parameters()).device
        texts = [self.prefix + source for source in sources]
        rows = self.tokenizer(texts, truncation=True, max_length=self.limits[0]).input_ids if texts else []
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        written = [""] * len(rows)

        def write(chosen: Sequence[int]) -> None:
            batch = self.tokenizer.pad({"input_ids": [rows[row] for row in chosen]}, return_tensors="pt").to(device)
            with torch.inference_mode(), autocast():
                output = model.generate(
                    input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=True,
                    num_beams=beams, do_sample=False, max_new_tokens=self.limits[1],
                )  # fmt: skip
            for row, text in zip(chosen, self.tokenizer.batch_decode(output, skip_special_tokens=True), strict=True):
                written[row] = text.strip()

        chance = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
        with chance, as_written(model), answering(model):
            in_portions(order, self.batch_size, write, progress)
        return written

    def __call__(
        self,
        model: Any,
        pairs: Sequence[Pair],
        *,
        beams: int,
        autocast: Callable[[], AbstractContextManager[Any]],
        place: Place,
    ) -> tuple[Scores, list[str]]:
        """Scores and translations. Ranks share the pairs, and all get the whole."""

        def work(sources: list[str]) -> list[str]:
            return self.translate(model, sources, beams=beams, autocast=autocast)

        sources = [pair.source for pair in pairs]
        translations = place.shared_out(sources, work, size=len)
        return score(translations, [pair.target for pair in pairs]), translations


def samples(pairs: Sequence[Pair], translations: Sequence[str], count: int) -> str:
    """A few translations with their references, evenly spaced."""
    if not count or not pairs:
        return ""
    stride = max(1, len(pairs) // count)
    lines = []
    for pair, translation in list(zip(pairs, translations, strict=True))[::stride][:count]:
        lines.append(f"    source     {_short(pair.source)}")
        lines.append(f"    model      {_short(translation)}{'  (right)' if translation == pair.target else ''}")
        if translation != pair.target:
            lines.append(f"    reference  {_short(pair.target)}")
    return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


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
    with MissingExtra.unless("sacrebleu", extra="recipes", what_for="scoring translations"):
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
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
