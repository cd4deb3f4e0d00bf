"""Assemble sampler, padding and loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from stayfinite.recipes.running.sharing import Examples
from stayfinite.recipes.seq2seq.batching import MULTIPLE, Example, LengthBuckets, Padding
from stayfinite.recipes.seq2seq.forms import FormBuckets, FormPadding

SPREAD = 64
"""Batches sorted together."""


class Loading(NamedTuple):
    """A loader and its parts."""

    loader: DataLoader[Any]
    sampler: LengthBuckets
    padding: Callable[[Sequence[Example]], dict[str, Tensor]]


def loading_of(
    examples: Sequence[Example],
    pad: int,
    device: torch.device,
    *,
    batch_size: int,
    tokens: int | None = None,
    buckets: bool = True,
    few_forms: bool = False,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Loading:
    """Shuffled batches of the examples.

    Arguments:
        pad: padding token.
        device: where batches are computed.
        batch_size: rows per batch, over all ranks.
        tokens: token budget per batch of all ranks, instead of ``batch_size``.
        buckets: batch similar lengths.
        few_forms: only a few dozen batch shapes, for CUDA graphs.
        seed: of the order.
        rank: of this process.
        ranks: that share each batch.
    """
    lengths = [(len(example.source), len(example.target)) for example in examples]
    spread = SPREAD if buckets else 0
    kind = FormBuckets if few_forms else LengthBuckets
    sampler = kind(lengths, batch_size, tokens=tokens, spread=spread, seed=seed, rank=rank, ranks=ranks)
    cuda = device.type == "cuda"
    padding: Callable[[Sequence[Example]], dict[str, Tensor]]
    if isinstance(sampler, FormBuckets):
        padding = FormPadding(pad, sampler)
    else:
        padding = Padding(pad=pad, multiple=MULTIPLE if cuda else 1)
    rows = Examples(examples, lambda example: example.unlabelled)
    loader = DataLoader(rows, batch_sampler=sampler, collate_fn=padding, pin_memory=cuda)
    return Loading(loader, sampler, padding)
