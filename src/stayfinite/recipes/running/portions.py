"""Rows are taken a few at a time, and fewer once so many did not fit into the device's memory."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence

import torch


def in_portions(
    rows: Sequence[int],
    size: int,
    work: Callable[[Sequence[int]], None],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Do the work for all rows, ``size`` at a time. A portion that does not fit is done again by halves.

    What was done stays done; so an hour's training is not lost to an evaluation that was asked for in too large a
    batch, nor is what the evaluation has done so far.

    Arguments:
        work: is given the rows of a portion; may be called again with some of them when memory ran out.
        progress: is told how many rows are done, of how many.
    """
    done = 0
    while done < len(rows):
        portion = rows[done : done + size]
        if not _fits(work, portion):
            size = (len(portion) + 1) // 2
            sys.stderr.write(f"out of memory with {len(portion)} rows at a time: continuing with {size}\n")
            continue
        done += len(portion)
        if progress is not None:
            progress(done, len(rows))


def _fits(work: Callable[[Sequence[int]], None], portion: Sequence[int]) -> bool:
    try:
        work(portion)
    except torch.OutOfMemoryError:
        if len(portion) == 1:
            raise
    else:
        return True
    # Only here is the error gone, and with it all that its frames held.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return False
