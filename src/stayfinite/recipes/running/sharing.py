"""Share the rows of a step among ranks: the same rows for any number of ranks."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from stayfinite.errors import UsageError


class Spare(int):
    """Index of a row that is computed but not learned from, for a rank without a row of its own."""


def share_of(rows: Sequence[int], rank: int, count: int) -> list[int]:
    """This rank's rows of a batch; a :class:`Spare` if there are fewer rows than ranks.

    Interleaved, so that every rank gets long and short rows of a batch sorted by length.

    Arguments:
        rows: indices in the batch of all ranks.
    """
    return list(rows[rank::count]) or [Spare(rows[0])]


class SharedBatches(Sampler[list[Any]]):
    """Batches in a new random order each epoch. All ranks draw the same batches and take their share of each.

    Arguments:
        rows: number of rows.
        size: rows per batch, over all ranks.
        ranks: number of ranks.
    """

    def __init__(self, rows: int, size: int, *, seed: int = 0, rank: int = 0, ranks: int = 1) -> None:
        self.rows, self.size, self.rank, self.ranks = rows, size, rank, ranks
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return math.ceil(self.rows / self.size)

    def order(self) -> Tensor:
        """All rows in the order of an epoch."""
        return torch.randperm(self.rows, generator=self.generator)

    def __iter__(self) -> Iterator[list[Any]]:
        for batch in self.order().split(self.size):
            yield share_of(batch.tolist(), self.rank, self.ranks)


def refuse_idle(rows: int, batch: int | None, ranks: int) -> None:
    """Refuse more ranks than rows.

    Arguments:
        rows: training rows.
        batch: rows per batch over all ranks; None if limited otherwise.

    Raises:
        UsageError: a rank would have none.
    """
    if rows < ranks:
        raise UsageError(
            f"{ranks} ranks but {rows} training rows: {ranks - rows} ranks would have none",
            fix=f"start at most {rows} ranks, or add data",
        )
    if batch is not None and batch < ranks:
        raise UsageError(
            f"{ranks} ranks but batches of {batch} rows: {ranks - batch} ranks would have none",
            fix=f"start at most {batch} ranks, or use a larger batch in another --output-dir",
        )


def weights_in_step(counts: Sequence[Tensor], ranks: int) -> list[float]:
    """Weights of the batches' mean losses in a step, so that every token counts the same.

    Averaging means would give tokens of short rows more weight. Computed on the host without a device sync.

    Arguments:
        counts: target tokens of each batch on this rank.
        ranks: that average their gradients.
    """
    own = torch.stack(list(counts)).to("cpu", torch.float64)
    total = own.sum()
    if ranks > 1:
        dist.all_reduce(total)
    weights: list[float] = (own * (ranks / total.clamp(min=1))).tolist()
    return weights


Row = TypeVar("Row")


@dataclass(eq=False)
class Examples(Dataset[Row]):
    """In-memory rows.

    Arguments:
        spare: turns a row into one without a loss, for a :class:`Spare` index.
    """

    examples: Sequence[Row]
    spare: Callable[[Row], Row] = lambda row: row

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Row:
        row = self.examples[index]
        return self.spare(row) if isinstance(index, Spare) else row
