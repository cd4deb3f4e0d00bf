"""Rows of tokens into batches: rows of like length together, padded to the longest of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

IGNORED = -100
"""Labels of padding: the loss passes over them."""


@dataclass(frozen=True, slots=True)
class Example:
    """One row as token ids, the end mark included."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """What it weighs in a batch."""
        return len(self.source) + len(self.target)


class Examples(Dataset[Example]):
    """Examples that are kept in memory."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]


class LengthBuckets(Sampler[list[int]]):
    """Batches of rows of like length, in a new random order each epoch.

    Arguments:
        lengths: of each row.
        batch_size: rows in a batch.
        tokens: instead of ``batch_size``, so many tokens at most in a batch, padding included.
        spread: how many batches are sorted together; more means less padding and less chance.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, *, tokens: int | None = None, spread: int = 64) -> None:
        self._lengths = torch.tensor(lengths)
        self._size = batch_size
        self._tokens = tokens
        self._spread = spread
        if tokens is not None:
            self._size = max(1, int(tokens / max(1.0, float(self._lengths.float().mean()))))
        self._count = sum(1 for _ in self._batches(torch.arange(len(lengths)))) if len(lengths) else 0

    def __len__(self) -> int:
        """Batches in an epoch; with a budget of tokens that of an epoch in the given order, others differ a little."""
        return self._count

    def __iter__(self) -> Iterator[list[int]]:
        batches = list(self._batches(torch.randperm(len(self._lengths))))
        for index in torch.randperm(len(batches)).tolist():
            yield batches[index]

    def _batches(self, order: Tensor) -> Iterator[list[int]]:
        for pool in order.split(self._size * self._spread):
            rows = pool[self._lengths[pool].argsort(stable=True)].tolist()
            if self._tokens is None:
                yield from (rows[start : start + self._size] for start in range(0, len(rows), self._size))
            else:
                yield from self._within_budget(rows, self._tokens)

    def _within_budget(self, rows: list[int], budget: int) -> Iterator[list[int]]:
        batch: list[int] = []
        for row in rows:  # the lengths rise, so the newest is the longest
            if batch and int(self._lengths[row]) * (len(batch) + 1) > budget:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Puts examples into one batch, each side padded to its longest row."""

    pad: int
    multiple: int = 8
    """Lengths are rounded up to this, which matrix units like and which keeps the number of shapes small."""

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        sources = [example.source for example in examples]
        source = self._rectangle(sources, self.pad)
        filled = torch.tensor([len(row) for row in sources])
        return {
            "input_ids": source,
            "attention_mask": (torch.arange(source.shape[1]) < filled[:, None]).long(),
            "labels": self._rectangle([example.target for example in examples], IGNORED),
        }

    def _rectangle(self, rows: Sequence[list[int]], fill: int) -> Tensor:
        width = -(-max(map(len, rows)) // self.multiple) * self.multiple
        return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def tokens_in(batch: Mapping[str, Tensor]) -> Tensor:
    """How many tokens a batch has, padding not counted."""
    return batch["attention_mask"].sum() + (batch["labels"] != IGNORED).sum()


def loader_of(
    examples: Sequence[Example],
    padding: Any,
    *,
    batch_size: int,
    tokens: int | None = None,
    buckets: bool = True,
    pin: bool = False,
) -> DataLoader[Any]:
    """A loader over the examples, shuffled, by length where ``buckets`` is on."""
    rows = Examples(examples)
    if not buckets and tokens is None:
        return DataLoader(rows, batch_size=batch_size, shuffle=True, collate_fn=padding, pin_memory=pin)
    sampler = LengthBuckets([example.length for example in examples], batch_size, tokens=tokens)
    return DataLoader(rows, batch_sampler=sampler, collate_fn=padding, pin_memory=pin)
