"""Rows of a training that are kept in memory, as torch's loaders take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch.utils.data import Dataset

Row = TypeVar("Row")


class Examples(Dataset[Row]):
    """Examples that are kept in memory."""

    def __init__(self, examples: Sequence[Row]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Row:
        return self.examples[index]
