"""Rows of a training that are kept in memory, as torch's loaders take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch.utils.data import Dataset

from stayfinite.recipes.running.sharing import Spare

Row = TypeVar("Row")


class Examples(Dataset[Row]):
    """Examples that are kept in memory.

    Arguments:
        spare: makes of a row one that nothing is learned from, for a number that is :class:`Spare`.
    """

    def __init__(self, examples: Sequence[Row], spare: Callable[[Row], Row] = lambda row: row) -> None:
        self.examples = examples
        self._spare = spare

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Row:
        row = self.examples[index]
        return self._spare(row) if isinstance(index, Spare) else row
