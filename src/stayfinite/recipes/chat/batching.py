"""Rows of tokens into batches: of like length, shared out among processes, padded to the longest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from stayfinite.recipes.chat.prompts import IGNORED, Example, decoded
from stayfinite.recipes.running.sharing import Examples
from stayfinite.recipes.seq2seq.batching import LengthBuckets


def shared_batches(
    lengths: Sequence[int], size: int, *, rank: int = 0, count: int = 1, seed: int = 0, spread: int = 16
) -> LengthBuckets:
    """Batches in a new random order each epoch. Every process draws the same order and takes its own share of each.

    Arguments:
        lengths: of each row; rows of like length come together, so that little is padded.
        size: rows in a batch of all processes.
        rank: of this process.
        count: of all processes.
        seed: for the order.
        spread: how many batches are sorted together; more means less padding and less chance.
    """
    sides = [(length, 0) for length in lengths]
    return LengthBuckets(sides, size, spread=spread, seed=seed, rank=rank, ranks=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Puts examples into one batch. Labels are masked by place: the end mark is learned even where it also pads."""

    pad: int
    multiple: int = 8
    """Lengths are rounded up to this, which matrix units like and which keeps the number of shapes small."""

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        # A process for which a batch has no row computes one of the others, which then counts for nothing.
        idle = {"counted": torch.tensor([not each.spare for each in examples])}
        width = -(-max(example.length for example in examples) // self.multiple) * self.multiple

        def filled(rows: Iterable[list[int]], fill: int) -> Tensor:
            return torch.tensor([row + [fill] * (width - len(row)) for row in rows])

        return {
            "input_ids": filled((each.prompt + each.completion for each in examples), self.pad),
            "attention_mask": filled(([1] * each.length for each in examples), 0),
            "labels": filled(([IGNORED] * len(each.prompt) + each.completion for each in examples), IGNORED),
            **(idle if any(each.spare for each in examples) else {}),
        }


def supervised(batch: Mapping[str, Tensor]) -> Tensor:
    """How many tokens of a batch are learned from: labels but for the first place, which nothing predicts."""
    learned = batch["labels"][:, 1:] != IGNORED
    return (learned[batch["counted"]] if "counted" in batch else learned).sum()


def rows_in_words(tokenizer: Any, batch: Mapping[str, Tensor]) -> list[str]:
    """What each row of a batch asks, and what it is to be answered."""
    rows = zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), batch["labels"].tolist(), strict=True)
    return [decoded(tokenizer, ids[: sum(mask)], labels[: sum(mask)]) for ids, mask, labels in rows]


def loader_of(
    examples: Sequence[Example], pad: int, *, size: int, rank: int = 0, count: int = 1, seed: int = 0, pin: bool = False
) -> DataLoader[Any]:
    """A loader over the examples, for one of so many processes; ``size`` rows of all of them in a batch."""
    sampler = shared_batches([each.length for each in examples], size, rank=rank, count=count, seed=seed)
    return DataLoader(
        Examples(examples, lambda row: replace(row, spare=True)), batch_sampler=sampler,
        collate_fn=Padding(pad=pad, multiple=8 if pin else 1),  # a CPU gains nothing by round lengths
        pin_memory=pin,
    )  # fmt: skip
