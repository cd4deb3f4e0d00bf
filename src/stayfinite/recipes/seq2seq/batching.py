"""Batches of token rows of similar length, padded to the longest; for CUDA graphs in few shapes.

Few shapes, dozens and not thousands, since a graph is recorded for each: lengths are rounded up to 8, 16, 24, 32, 48,
64, 96, 128, ..., and batches of given lengths always have the same number of rows, filled up with unlabeled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from stayfinite.recipes.running.sharing import Examples, share_of

IGNORED = -100
"""Label of padding, ignored by the loss."""
MULTIPLE = 8
"""Lengths are rounded up to this for tensor cores, and when counting a token budget."""
Form = tuple[int, int]
"""Source and target length."""


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of one row, with end tokens."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Its weight in a batch."""
        return len(self.source) + len(self.target)

    @property
    def unlabelled(self) -> Example:
        """The row without labels, so that nothing is learned from it."""
        return Example(self.source, [IGNORED] * len(self.target))


class LengthBuckets(Sampler[list[int]]):
    """Batches of similar length in a new random order each epoch.

    The order depends only on the sampler's own generator. So :meth:`counts` can tell the batches of future epochs,
    which a schedule needs if a token budget decides the rows of a batch.

    Arguments:
        lengths: source and target length of each row.
        batch_size: rows per batch, over all ranks.
        tokens: token budget per batch of all ranks, padding included, instead of ``batch_size``. A longer row is its
            own batch.
        spread: batches sorted by length together; more means less padding and less randomness; 0 disables sorting.
        seed: of the order.
        rank: of this process. All ranks draw the same batches and take their share of each.
        ranks: number of ranks.
    """

    def __init__(
        self,
        lengths: Sequence[tuple[int, int]],
        batch_size: int,
        *,
        tokens: int | None = None,
        spread: int = 64,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.rank, self.ranks = rank, ranks
        # Rounded like the padding on a GPU, so that the budget covers what is computed.
        self._sides = [(self._rounded_side(source), self._rounded_side(target)) for source, target in lengths]
        # By the longer side. By the sum, a long source with a short target would meet the opposite, and each would
        # pad the other.
        self._longer = torch.tensor([max(sides) for sides in lengths], dtype=torch.long)
        self._tokens = tokens
        self._spread = spread
        mean = sum(map(sum, self._sides)) / len(self._sides) if self._sides else 1.0
        self._size = batch_size if tokens is None else max(1, int(tokens / mean))
        self.generator = torch.Generator().manual_seed(seed)
        self._count = self.counts(1)[0]

    def __len__(self) -> int:
        """Batches in an epoch; with a token budget those of the first, others differ slightly."""
        return self._count

    def counts(self, epochs: int) -> list[int]:
        """Batches in each of the next epochs. Does not advance the order."""
        ahead = torch.Generator()
        ahead.set_state(self.generator.get_state())
        return [len(self._drawn(ahead)) for _ in range(epochs)]

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._drawn(self.generator):
            yield share_of(batch, self.rank, self.ranks)

    def _rounded_side(self, length: int) -> int:
        return _rounded(length, MULTIPLE)

    def _drawn(self, generator: torch.Generator) -> list[list[int]]:
        if not self._sides:
            return []  # a split of nothing is one empty part
        batches = list(self._batches(torch.randperm(len(self._sides), generator=generator)))
        return [batches[index] for index in torch.randperm(len(batches), generator=generator).tolist()]

    def _batches(self, order: Tensor) -> Iterator[list[int]]:
        for pool in order.split(max(1, self._size * max(1, self._spread))):
            rows = pool[self._longer[pool].argsort(stable=True)] if self._spread else pool
            if (budget := self._tokens) is None:
                yield from (part.tolist() for part in rows.split(self._size))
            else:
                yield from self._filled(rows.tolist(), lambda form, count: sum(form) * count <= budget)

    def _filled(self, rows: list[int], fits: Callable[[Form, int], bool]) -> Iterator[list[int]]:
        """Consecutive rows, as many in a batch as fit, given its longest sides and its number of rows."""
        batch: list[int] = []
        form = (0, 0)
        for row in rows:
            sides = self._sides[row]
            wider = (max(form[0], sides[0]), max(form[1], sides[1]))
            if batch and not fits(wider, len(batch) + 1):
                yield batch
                batch, wider = [], sides
            batch.append(row)
            form = wider
        if batch:
            yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Collates examples into a batch, each side padded to its longest row.

    Arguments:
        multiple: lengths are rounded up to it.
    """

    pad: int
    multiple: int = MULTIPLE

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        source, target = longest(examples)
        return collated(examples, self.pad, (_rounded(source, self.multiple), _rounded(target, self.multiple)))


def longest(examples: Sequence[Example]) -> Form:
    """The longest source and the longest target."""
    return max(len(example.source) for example in examples), max(len(example.target) for example in examples)


def collated(examples: Sequence[Example], pad: int, form: Form) -> dict[str, Tensor]:
    """Examples as a batch of this shape."""
    filled = torch.tensor([len(example.source) for example in examples])
    return {
        "input_ids": _rectangle([example.source for example in examples], pad, form[0]),
        "attention_mask": (torch.arange(form[0]) < filled[:, None]).long(),
        "labels": _rectangle([example.target for example in examples], IGNORED, form[1]),
    }


def _rectangle(rows: Sequence[list[int]], fill: int, width: int) -> Tensor:
    filled = np.full((len(rows), width), fill, dtype=np.int64)
    for number, row in enumerate(rows):
        filled[number, : len(row)] = row
    return torch.from_numpy(filled)


def _rounded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def tokens_in(batch: Mapping[str, Tensor]) -> Tensor:
    """Tokens in a batch, without padding."""
    labelled = batch["labels"] != IGNORED
    return batch["attention_mask"][labelled.any(1)].sum() + labelled.sum()


def labels_in(batch: Mapping[str, Tensor]) -> Tensor:
    """Target tokens in a batch."""
    return (batch["labels"] != IGNORED).sum()


def rows_in_words(tokenizer: Any) -> Callable[[dict[str, Tensor]], list[str]]:
    """A function from a batch to `source => target` of each row."""

    def describe(batch: dict[str, Tensor]) -> list[str]:
        labels = batch["labels"].masked_fill(batch["labels"] == IGNORED, tokenizer.pad_token_id)
        sides = [
            tokenizer.batch_decode(rows.tolist(), skip_special_tokens=True) for rows in (batch["input_ids"], labels)
        ]
        return [f"{source} => {target}" for source, target in zip(*sides, strict=True)]

    return describe


def rung(length: int) -> int:
    """The next allowed length: a power of two, or halfway between two."""
    power = MULTIPLE
    while power < length:
        if length <= power * 3 // 2 and power > MULTIPLE:
            return power * 3 // 2
        power *= 2
    return power


class FormBuckets(LengthBuckets):
    """Batches of one shape; leftovers are combined by their longer side.

    Arguments as for :class:`LengthBuckets`.
    """

    def rows(self, form: Form) -> int:
        """Rows of every batch of this shape, over all ranks."""
        if self._tokens is None:
            return self._size
        fitting = self._tokens // sum(form)
        return max(1, fitting // MULTIPLE * MULTIPLE or fitting)

    def _rounded_side(self, length: int) -> int:
        return rung(length)

    def _batches(self, order: Tensor) -> Iterator[list[int]]:
        for pool in order.split(max(1, self._size * max(1, self._spread))):
            cells: dict[Form, list[int]] = {}
            for row in pool.tolist():
                cells.setdefault(self._sides[row], []).append(row)
            rest: list[int] = []
            for form in sorted(cells):
                rows, size = cells[form], self.rows(form)
                whole = len(rows) // size * size
                yield from (rows[start : start + size] for start in range(0, whole, size))
                rest += rows[whole:]
            leftover = sorted(rest, key=lambda row: int(self._longer[row]))
            yield from self._filled(leftover, lambda form, count: count <= self.rows(form))


class FormPadding:
    """Collates examples into a batch of an allowed shape.

    Arguments:
        pad: padding token.
        buckets: draws the batches, and knows their number of rows.
    """

    def __init__(self, pad: int, buckets: FormBuckets) -> None:
        self._buckets = buckets
        # An added row attends to one token: a softmax over nothing is NaN.
        self._pad, self._blank = pad, Example([pad], [IGNORED])

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        source, target = longest(examples)
        form = (rung(source), rung(target))
        # This rank's share of a whole batch.
        missing = max(0, -(-self._buckets.rows(form) // self._buckets.ranks) - len(examples))
        return collated([*examples, *[self._blank] * missing], self._pad, form)


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
