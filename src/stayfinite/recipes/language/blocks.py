"""Training objectives (span corruption, prefix language modeling), blocks of tokens, and masked batches of them.

No token is dropped. Order and seeds of the masks come from the sampler's own generator, whose state is in the
checkpoint. So a resumed epoch has the same batches and masks, and every rank draws the same order.
"""

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset

from stayfinite.errors import UsageError
from stayfinite.recipes.running.sharing import SharedBatches, Spare, share_of
from stayfinite.recipes.seq2seq.batching import IGNORED, Example
from stayfinite.recipes.seq2seq.tokenizers import sentinel_ids, with_sentinels

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


Packing = Literal["long", "all"]
"""`long` splits long texts only; `all` also packs short ones, separated by an end token."""
LEAST = 2
"""Minimum tokens per block; fewer leave nothing to predict from."""
CHUNK = 1000
"""Texts tokenized at a time."""


class Blocks:
    """Blocks of token ids, four bytes per token."""

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
        self._tokens = array("i")
        self._ends = array("q", [0])
        for row in rows:
            self._tokens.extend(row)
            self._ends.append(len(self._tokens))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> list[int]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._tokens[self._ends[number] : self._ends[number + 1]].tolist()

    @property
    def lengths(self) -> list[int]:
        """Tokens per block."""
        return [self._ends[number + 1] - self._ends[number] for number in range(len(self))]

    @property
    def tokens(self) -> int:
        """Total tokens."""
        return len(self._tokens)


def cut(row: Sequence[int], size: int) -> list[Sequence[int]]:
    """Split a row into pieces of at most ``size`` tokens, as equal as possible."""
    count = max(1, -(-len(row) // size))
    bounds = [len(row) * number // count for number in range(count + 1)]
    return [row[start:end] for start, end in pairwise(bounds)]


def blocks_of(rows: Iterable[Sequence[int]], size: int, *, packing: Packing = "long", end: int = 1) -> Blocks:
    """Rows as blocks of at most ``size`` tokens. Single-token rows are dropped.

    Arguments:
        end: token between two texts in a block.
    """
    pieces = (piece for row in rows for piece in cut(row, size) if len(piece) >= LEAST)
    return Blocks(pieces if packing == "long" else _together(pieces, size, end))


def tokenized(texts: Sequence[str], tokenizer: Any, reserved: Iterable[int]) -> Iterator[list[int]]:
    """Token ids of each text, without end tokens.

    Arguments:
        reserved: ids to remove: `<extra_id_3>` written in a text is not a gap.
    """
    forbidden = set(reserved)
    for start in range(0, len(texts), CHUNK):
        found = tokenizer(list(texts[start : start + CHUNK]), add_special_tokens=False, verbose=False).input_ids
        for row in found:
            yield row if forbidden.isdisjoint(row) else [token for token in row if token not in forbidden]


def _together(pieces: Iterable[Sequence[int]], size: int, end: int) -> Iterator[list[int]]:
    block: list[int] = []
    for piece in pieces:
        if block and len(block) + 1 + len(piece) > size:
            yield block
            block = []
        block = [*block, end, *piece] if block else list(piece)
    if block:
        yield block


def blocks_for(texts: Sequence[str], tokenizer: Any, size: int, packing: Packing) -> Blocks:
    """Texts as blocks, without reserved tokens."""
    reserved = [*sentinel_ids(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id]
    return blocks_of(tokenized(texts, tokenizer, reserved), size, packing=packing, end=tokenizer.eos_token_id)


Item = tuple[int, int]
"""Index of a block and the seed of its mask. A `Spare` index is not learned from."""
SPREAD = 64
"""Batches sorted by length together; more means less padding and less randomness."""


@dataclass(eq=False)
class MaskedBlocks(Dataset[Example]):
    """Blocks with a mask that depends on the seed."""

    blocks: Blocks
    masking: Masking

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, item: Item) -> Example:
        number, seed = item
        row = self.masking(self.blocks[number], seed)
        return row.unlabelled if isinstance(number, Spare) else row


class SeededBatches(SharedBatches):
    """Batches of blocks of like length, each block with the seed of its mask; see :class:`SharedBatches`.

    Arguments:
        lengths: of the blocks.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, **shared: int) -> None:
        super().__init__(len(lengths), batch_size, **shared)
        self._lengths = torch.tensor(lengths)

    def __iter__(self) -> Iterator[list[Item]]:
        order = self.order()
        seeds = torch.randint(2**62, (self.rows,), generator=self.generator).tolist()
        pools = [pool[self._lengths[pool].argsort(stable=True)] for pool in order.split(self.size * SPREAD)]
        batches = [batch.tolist() for pool in pools for batch in pool.split(self.size)]
        for place in torch.randperm(len(batches), generator=self.generator).tolist():
            yield [(number, seeds[number]) for number in share_of(batches[place], self.rank, self.ranks)]
