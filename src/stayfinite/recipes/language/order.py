"""Order of an epoch: batches of similar length, each block with the seed of its mask.

Order and seeds come from the sampler's own generator, whose state is in the checkpoint. So a resumed epoch has the same
batches and masks, and every rank draws the same order.
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
"""Index of a block and the seed of its mask. A `Spare` index is not learned from."""
SPREAD = 64
"""Batches sorted by length together; more means less padding and less randomness."""


class MaskedBlocks(Dataset[Example]):
    """Blocks with a mask that depends on the seed."""

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


def loader_of(
    blocks: Blocks, masking: Masking, padding: Padding, batches: SeededBatches, *, pin: bool = False
) -> DataLoader[Example]:
    """A data loader over masked blocks."""
    return DataLoader(MaskedBlocks(blocks, masking), batch_sampler=batches, collate_fn=padding, pin_memory=pin)
