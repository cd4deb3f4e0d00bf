"""Tokenize pairs within length limits, and report what the limits cost. Sample segmentations of words."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.batching import Example
from stayfinite.recipes.seq2seq.built_in import Pair

BACK = "<extra_id_0>"
"""Marks a target to be translated back into its source."""
MUCH = 0.05
"""Share of truncated rows or unknown tokens that triggers a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """Tokenizes texts.

    Arguments:
        prefix: prepended to every source.
        limits: tokens of source and target, with end tokens.
        too_long: what to do with rows beyond them.
        two_way: add each pair reversed, its source marked with `BACK`.
        segment: splits a text into different pieces at each call.
        segmentations: extra rows per pair made by `segment`.
    """

    tokenizer: Any
    prefix: str
    limits: tuple[int, int]
    too_long: Literal["cut", "drop"] = "cut"
    two_way: bool = False
    segment: Segmenter | None = None
    segmentations: int = 0

    def __call__(self, pairs: Sequence[Pair], say: Callable[[str], None]) -> list[Example]:
        """Tokenize, and report what was lost. Raises UsageError if every row was dropped."""
        rows = self._tokens(pairs)
        if len(rows) > len(pairs):
            ways = ["both directions"] if self.two_way else []
            ways += [f"{1 + self.segmentations} segmentations"] if self.segmentations else []
            say(f"{len(pairs):,} pairs become {len(rows):,}: {' and '.join(ways)} of each")
        if words := self._lost(rows):
            say(words)
        self._unknown(rows, say)
        fitting = self._fitting(rows)
        if not fitting:
            raise UsageError("every pair exceeds the length limits", fix="raise --max-source-length or shorten them")
        return fitting

    def quietly(self, pairs: Sequence[Pair]) -> list[Example]:
        """Tokenize without a report; may return no rows."""
        return self._fitting(self._tokens(pairs)) if pairs else []

    def _tokens(self, pairs: Sequence[Pair]) -> list[Example]:
        ways = [("", [self.prefix + pair.source for pair in pairs], [pair.target for pair in pairs])]
        if self.two_way:
            ways.append((BACK, [pair.target for pair in pairs], [pair.source for pair in pairs]))
        rows: list[Example] = []
        for mark, sources, targets in ways:
            given = self.tokenizer([mark + text for text in sources]).input_ids
            wanted = self.tokenizer(targets).input_ids
            rows += map(Example, given, wanted)
            if self.segment is not None:
                for _ in range(self.segmentations):
                    rows += map(Example, map(self.segment, sources, repeat(mark)), map(self.segment, targets))
        return rows

    def _fitting(self, rows: Sequence[Example]) -> list[Example]:
        """Rows within the limits: truncated, or without longer ones."""
        end = self.tokenizer.eos_token_id
        kept = [row for row in rows if self.too_long == "cut" or not self._beyond(row)]
        return [Example(_cut(row.source, self.limits[0], end), _cut(row.target, self.limits[1], end)) for row in kept]

    def _beyond(self, row: Example) -> bool:
        return len(row.source) > self.limits[0] or len(row.target) > self.limits[1]

    def _lost(self, rows: Sequence[Example]) -> str:
        """How many rows the limits cut or drop, in words; empty if none."""
        sources = sum(len(row.source) > self.limits[0] for row in rows)
        targets = sum(len(row.target) > self.limits[1] for row in rows)
        if not sources + targets:
            return ""
        fate = "cut" if self.too_long == "cut" else "dropped"
        told = (
            f"{fate} for more than {self.limits[0]} and {self.limits[1]} tokens: {sources:,} of {len(rows):,} sources, "
            f"{targets:,} targets"
        )
        if max(sources, targets) <= MUCH * len(rows):
            return told
        longest = max(len(row.source) for row in rows), max(len(row.target) for row in rows)
        return (
            f"{told}\n  warning: that is a lot. The longest have {longest[0]} and {longest[1]}: raise "
            "--max-source-length and --max-target-length"
        )

    def _unknown(self, rows: Sequence[Example], say: Callable[[str], None]) -> None:
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        if unknown is None:
            return
        for side, found in (("sources", [row.source for row in rows]), ("targets", [row.target for row in rows])):
            share = sum(row.count(unknown) for row in found) / max(1, sum(map(len, found)))
            if share > MUCH:
                say(
                    f"  warning: {share:.0%} of the {side} tokens are unknown to the tokenizer: use bytes "
                    "(google/byt5-small, --tokenizer bytes) or train a tokenizer"
                )


def _cut(row: list[int], limit: int, end: int) -> list[int]:
    """Truncate a row, keeping its end token."""
    return row if len(row) <= limit else [*row[: limit - 1], end]


SHARPNESS = 0.3
"""Inverse temperature of the sampled segmentations: texts become about an eighth longer."""
MOST = 32
"""Segmentations of a word that are drawn from."""
SPACE = "\u2581"


class Segmenter:
    """Sample segmentations from a SentencePiece vocabulary, word by word: no piece reaches over a space.

    Arguments:
        tokenizer: of the model, made from the vocabulary.
        vocabulary: the SentencePiece model file.
        seed: a second segmenter with the same seed samples the same.

    Raises:
        UsageError: there is no such vocabulary.
    """

    def __init__(self, tokenizer: Any, vocabulary: Path, *, seed: int) -> None:
        import sentencepiece

        if not vocabulary.is_file():
            raise UsageError(
                "--segmentations needs a SentencePiece vocabulary with its spiece.model",
                fix="--tokenizer RUN/tokenizer of a run that trained one, or leave out --segmentations",
            )
        self._pieces = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
        self._tokenizer = tokenizer
        self._chance = random.Random(seed)
        self._segmentations = lru_cache(maxsize=1 << 18)(self._of_word)

    def __call__(self, text: str, mark: str = "") -> list[int]:
        """Token ids of one sampled segmentation.

        Arguments:
            mark: a special token to put before the text.
        """
        ids = [self._tokenizer.convert_tokens_to_ids(mark)] if mark else []
        for word in self._pieces.normalize(text).split(SPACE):
            if word:
                choices, weights = self._segmentations(word)
                ids += choices[0] if len(choices) == 1 else self._chance.choices(choices, weights)[0]
        return [*ids, self._tokenizer.eos_token_id]

    def _of_word(self, word: str) -> tuple[list[list[int]], list[float]]:
        choices: list[list[int]] = self._pieces.nbest_encode(word, nbest_size=MOST)
        scores = [sum(map(self._pieces.get_score, choice)) for choice in choices]
        return choices, [math.exp(SHARPNESS * (score - max(scores))) for score in scores]
