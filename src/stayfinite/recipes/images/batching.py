"""Batches of pairs. A pair is one row; its swap is the same row with the images exchanged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from stayfinite.recipes.images.data import decode
from stayfinite.recipes.images.pairs import Pair
from stayfinite.recipes.running.sharing import Spare, share_of

Batch = dict[str, Tensor]


class Pixels:
    """Loads images as model input, cached in memory up to a limit.

    Arguments:
        image_processor: of the model, from transformers.
        megabytes: size of the cache.
    """

    def __init__(self, image_processor: Any, *, megabytes: int) -> None:
        self._process = image_processor
        self._room = megabytes * 2**20
        self._kept: dict[str, Tensor] = {}

    def __call__(self, path: str) -> Tensor:
        """(3, H, W), float32. Raises UsageError if the image cannot be read."""
        known = self._kept.get(path)
        if known is not None:
            return known
        pixels: Tensor = self._process(images=[decode(path)], return_tensors="pt")["pixel_values"][0].float()
        if self._room >= pixels.nbytes:
            self._room -= pixels.nbytes
            self._kept[path] = pixels
        return pixels


class PairRows(Dataset[Batch]):
    """Pairs with their pixels. Torch collates them: images (B, 2, 3, H, W), labels, rows and counted (B,)."""

    def __init__(self, pairs: Sequence[Pair], pixels: Callable[[str], Tensor]) -> None:
        self.pairs = pairs
        self._pixels = pixels

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Batch:
        pair = self.pairs[index]
        return {
            "images": torch.stack([self._pixels(pair.first), self._pixels(pair.second)]),  # (2, 3, H, W)
            "labels": torch.tensor(pair.label),
            "rows": torch.tensor(index),
            "counted": torch.tensor(not isinstance(index, Spare)),
        }


class PairBatches(Sampler[list[int]]):
    """Batches in a new random order each epoch. All ranks draw the same batches and take their share of each.

    Arguments:
        rows: number of rows.
        size: rows per batch, over all ranks.
        ranks: number of ranks.
    """

    def __init__(self, rows: int, size: int, *, seed: int, rank: int = 0, ranks: int = 1) -> None:
        self._rows, self._size, self._rank, self._ranks = rows, size, rank, ranks
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return math.ceil(self._rows / self._size)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in torch.randperm(self._rows, generator=self.generator).split(self._size):
            yield share_of(batch.tolist(), self._rank, self._ranks)


def loader_of(rows: PairRows, batches: PairBatches, *, workers: int, pin: bool) -> DataLoader[Batch]:
    """A data loader over these batches."""
    return DataLoader(rows, batch_sampler=batches, num_workers=workers, pin_memory=pin, persistent_workers=workers > 0)


def with_weight(batch: Batch, weight: float) -> Batch:
    """Add this step's weight of the consistency term, so that the batch can be replayed."""
    return batch | {"consistency": torch.full((len(batch["labels"]),), weight)}
