"""The order of an epoch: batches of blocks of like length, each block with the seed of its mask.

Order and seeds come from one generator of the sampler's own. A checkpoint holds its state, so an epoch that is joined
in the middle has the same batches and the same masks; and every rank draws the same order, and takes its share of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from stayfinite.recipes.language.blocks import Blocks
from stayfinite.recipes.language.masking import Masking
from stayfinite.recipes.running.sharing import Spare, share_of
from stayfinite.recipes.seq2seq.batching import Example, Padding

Item = tuple[int, int]
"""Number of a block, and the seed of its mask. A number that is `Spare` teaches nothing."""
SPREAD = 64
"""Batches that are sorted by length together; more means less padding and less chance."""


class MaskedBlocks(Dataset[Example]):
    """Blocks with a mask; a block that is asked for with another seed has another one."""

    def __init__(self, blocks: Blocks, masking: Masking) -> None:
        self._blocks = blocks
        self._masking = masking

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, item: Item) -> Example:
        number, seed = item
        row = self._masking(self._blocks[number], seed)
        return row.unlabelled if isinstance(number, Spare) else row


class SeededBatches(Sampler[list[Item]]):
    """Batches of an epoch, in a new order and with new masks each time.

    Arguments:
        lengths: of the blocks.
        batch_size: blocks in a batch of all ranks.
        seed: of the generator that order and masks are drawn from.
        rank: which of several processes this is.
        ranks: how many there are; each has its share of every batch.
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


def loader_of(
    blocks: Blocks, masking: Masking, padding: Padding, batches: SeededBatches, *, pin: bool = False
) -> DataLoader[Example]:
    """A loader over masked blocks."""
    return DataLoader(MaskedBlocks(blocks, masking), batch_sampler=batches, collate_fn=padding, pin_memory=pin)
