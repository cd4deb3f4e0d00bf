"""Split token sequences into blocks without dropping any tokens, and draw masked batches of them.

Order and seeds of the masks come from the sampler's own generator, whose state is in the checkpoint. So a resumed epoch
has the same batches and masks, and every rank draws the same order.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch.utils.data import Dataset, Sampler

from stayfinite.recipes.language.masking import Masking
from stayfinite.recipes.running.sharing import Spare, share_of
from stayfinite.recipes.seq2seq.batching import Example
from stayfinite.recipes.seq2seq.tokenizers import sentinel_ids

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


class SeededBatches(Sampler[list[Item]]):
    """Batches of an epoch, with a new order and new masks each time.

    Arguments:
        lengths: of the blocks.
        batch_size: blocks per batch, over all ranks.
        seed: for order and masks.
        rank: of this process.
        ranks: number of ranks, which share every batch.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, *, seed: int, rank: int = 0, ranks: int = 1) -> None:
        self._lengths = torch.tensor(lengths)
        self._size = batch_size
        self._rank, self._ranks = rank, ranks
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return math.ceil(len(self._lengths) / self._size)

    def __iter__(self) -> Iterator[list[Item]]:
        count = len(self._lengths)
        order = torch.randperm(count, generator=self.generator)
        seeds = torch.randint(2**62, (count,), generator=self.generator).tolist()
        pools = [pool[self._lengths[pool].argsort(stable=True)] for pool in order.split(self._size * SPREAD)]
        batches = [batch.tolist() for pool in pools for batch in pool.split(self._size)]
        for place in torch.randperm(len(batches), generator=self.generator).tolist():
            yield [(number, seeds[number]) for number in share_of(batches[place], self._rank, self._ranks)]
