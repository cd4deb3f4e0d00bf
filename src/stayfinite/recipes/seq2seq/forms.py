"""Batches of few shapes, since a CUDA graph is recorded for each: dozens, not thousands.

Lengths are rounded up to 8, 16, 24, 32, 48, 64, 96, 128, ..., and batches of given lengths always have the same number
of rows, filled up with unlabeled ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from stayfinite.recipes.seq2seq.batching import IGNORED, MULTIPLE, Example, LengthBuckets, Padding

Form = tuple[int, int]
"""Source and target length."""


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
            yield from self._leftover(sorted(rest, key=lambda row: int(self._longer[row])))

    def _leftover(self, rows: list[int]) -> Iterator[list[int]]:
        batch: list[int] = []
        form = (0, 0)
        for row in rows:
            sides = self._sides[row]
            wider = (max(form[0], sides[0]), max(form[1], sides[1]))
            if batch and len(batch) + 1 > self.rows(wider):
                yield batch
                batch, wider = [], sides
            batch.append(row)
            form = wider
        if batch:
            yield batch


class FormPadding:
    """Collates examples into a batch of an allowed shape.

    Arguments:
        pad: padding token.
        buckets: draws the batches, and knows their number of rows.
    """

    def __init__(self, pad: int, buckets: FormBuckets) -> None:
        self._pad = Padding(pad=pad)
        self._buckets = buckets

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        form = (
            rung(max(len(example.source) for example in examples)),
            rung(max(len(example.target) for example in examples)),
        )
        batch = self._pad(examples)
        # This rank's share of a whole batch.
        missing = max(0, -(-self._buckets.rows(form) // self._buckets.ranks) - len(examples))
        return {
            "input_ids": _filled(batch["input_ids"], form[0], missing, self._pad.pad),
            "attention_mask": _attended(_filled(batch["attention_mask"], form[0], missing, 0), missing),
            "labels": _filled(batch["labels"], form[1], missing, IGNORED),
        }


def _filled(rows: Tensor, width: int, missing: int, value: int) -> Tensor:
    return torch.nn.functional.pad(rows, (0, width - rows.shape[1], 0, missing), value=value)


def _attended(mask: Tensor, missing: int) -> Tensor:
    """Let added rows attend to one token: a softmax over nothing is NaN."""
    if missing:
        mask[-missing:, 0] = 1
    return mask
