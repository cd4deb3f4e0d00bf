"""In-memory training rows as a torch dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch.utils.data import Dataset

from stayfinite.recipes.running.sharing import Spare

Row = TypeVar("Row")


class Examples(Dataset[Row]):
    """In-memory rows.

    Arguments:
        spare: turns a row into one without a loss, for a :class:`Spare` index.
    """

    def __init__(self, examples: Sequence[Row], spare: Callable[[Row], Row] = lambda row: row) -> None:
        self.examples = examples
        self._spare = spare

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Row:
        row = self.examples[index]
        return self._spare(row) if isinstance(index, Spare) else row
