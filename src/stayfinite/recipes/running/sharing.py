"""The rows of a step, shared out among ranks: a step has the same rows however many there are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from stayfinite.errors import UsageError


class Spare(int):
    """The number of a row that a rank computes and learns nothing from, because a batch has fewer rows than ranks."""


def share_of(rows: Sequence[int], rank: int, count: int) -> list[int]:
    """The rows of a batch that this rank computes; one :class:`Spare` where the batch has fewer rows than ranks.

    Every rank gets long and short rows alike from a batch that is sorted by length.

    Arguments:
        rows: the numbers of the rows in the batch of all ranks.
    """
    return list(rows[rank::count]) or [Spare(rows[0])]


def refuse_idle(rows: int, batch: int | None, ranks: int) -> None:
    """Refuse more ranks than there are rows for.

    Arguments:
        rows: that are trained on.
        batch: rows in a batch of all ranks; None where another number limits it.

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
    """What the mean loss of each batch counts for in its step, so that every token counts the same.

    Averaging the means of batches, or of ranks, would let the tokens of short rows count more. On the host, where the
    batches come from: no device waits.

    Arguments:
        counts: tokens of each batch of the step that are learned from, on this rank.
        ranks: that average their gradients.
    """
    own = torch.stack(list(counts)).to("cpu", torch.float64)
    total = own.sum()
    if ranks > 1:
        dist.all_reduce(total)
    weights: list[float] = (own * (ranks / total.clamp(min=1))).tolist()
    return weights
