"""Training objectives: T5's span corruption, and prefix language modeling."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.batching import IGNORED, Example
from stayfinite.recipes.seq2seq.tokenizers import with_sentinels

Objective = Literal["span_corruption", "prefix_lm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCorruption:
    """T5's objective: replace spans of a block with sentinels, to be predicted.

    `a b c d e f g` becomes `a <0> d e <1> g` with target `<0> b c <1> f <2>`, each with an end token.
    """

    sentinels: Sequence[int]
    """In order: `<extra_id_0>`, `<extra_id_1>`, and so on."""
    end: int
    density: float = 0.15
    """Share of tokens to mask."""
    mean_span: float = 3.0
    """Mean tokens per span."""

    def __post_init__(self) -> None:
        if len(self.sentinels) < 2:
            raise UsageError(
                f"the tokenizer has {len(self.sentinels)} sentinels (<extra_id_0> ...), but span corruption needs two",
                fix="train a tokenizer here with --tokenizer-dir NEW, or --objective prefix_lm",
            )
        if not 0 < self.density < 1:
            raise UsageError(f"--noise-density {self.density}: expected a share between 0 and 1", fix="0.15 is T5's")
        if not self.mean_span >= 1:
            raise UsageError(f"--mean-span-length {self.mean_span}: expected at least 1", fix="3 is T5's")

    def __call__(self, block: Sequence[int], seed: int) -> Example:
        """The masked block and its target, determined by the seed."""
        chance = random.Random(seed)
        taken = min(max(1, round(len(block) * self.density)), len(block) - 1)
        left = len(block) - taken
        # One extra sentinel ends the target.
        spans = min(max(1, round(taken / self.mean_span)), taken, left + 1, len(self.sentinels) - 1)
        source: list[int] = []
        target: list[int] = []
        position = 0
        # Kept lengths before, between and after the gaps. The first and last may be 0, so that a gap can be anywhere
        # in a short text.
        first, *between = _parts(left + 2, spans + 1, chance)
        gaps = zip(self.sentinels, [first - 1, *between[:-1]], _parts(taken, spans, chance), strict=False)
        for sentinel, kept, gone in gaps:
            source += [*block[position : position + kept], sentinel]
            target += [sentinel, *block[position + kept : position + kept + gone]]
            position += kept + gone
        return Example([*source, *block[position:], self.end], [*target, self.sentinels[spans], self.end])

    def whole(self, example: Example) -> list[int]:
        """The block an example was made from."""
        spans = spans_of(example.target[:-1], self.sentinels, ())
        gaps = {mark: spans.get(mark, []) for mark in self.sentinels}
        return [token for place in example.source[:-1] for token in gaps.get(place, [place])]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixLanguageModel:
    """Split a block at a random place: the beginning is given, the rest is the target."""

    end: int

    def __call__(self, block: Sequence[int], seed: int) -> Example:
        """Beginning and continuation, determined by the seed."""
        place = random.Random(seed).randint(1, len(block) - 1)
        return Example([*block[:place], self.end], [*block[place:], self.end])

    def whole(self, example: Example) -> list[int]:
        """The block an example was made from."""
        return example.source[:-1] + example.target[:-1]


Masking = SpanCorruption | PrefixLanguageModel


def spans_of(written: Iterable[int], sentinels: Sequence[int], ends: Iterable[int]) -> dict[int, list[int]]:
    """Tokens written for each sentinel; those before the first sentinel count for it.

    Arguments:
        ends: ids that end the text, including padding.
    """
    marks, over = set(sentinels), set(ends)
    spans: dict[int, list[int]] = {}
    current = spans.setdefault(sentinels[0], []) if sentinels else []
    for place, token in enumerate(written):
        if token in over:
            if place == 0:
                continue  # a decoder starts with padding
            break
        if token in marks:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    return spans


def _parts(total: int, count: int, chance: random.Random) -> list[int]:
    """Random positive lengths with this sum, uniform over all such splits."""
    bounds = [0, *sorted(chance.sample(range(1, total), count - 1)), total]
    return [after - before for before, after in pairwise(bounds)]


def masking_for(objective: Objective, tokenizer: Any, *, density: float, mean_span: float) -> Masking:
    """The masking for an objective. Adds sentinels to a tokenizer that lacks them."""
    end = tokenizer.eos_token_id
    if objective == "prefix_lm":
        return PrefixLanguageModel(end=end)
    return SpanCorruption(sentinels=with_sentinels(tokenizer), end=end, density=density, mean_span=mean_span)


def rows_in_words(tokenizer: Any, masking: Masking) -> Callable[[Mapping[str, Tensor]], list[str]]:
    """A function from a batch to the text of each row, with gaps filled."""

    def describe(batch: Mapping[str, Tensor]) -> list[str]:
        rows = zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True)
        examples = (
            Example(given[mask.bool()].tolist(), asked[asked != IGNORED].tolist()) for given, mask, asked in rows
        )
        return [str(tokenizer.decode(masking.whole(example))) for example in examples]

    return describe
