"""Process rows in portions, halved when memory runs out."""

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
    """Process all rows, ``size`` at a time. A portion that does not fit in memory is retried in halves.

    Finished portions are kept, so that an evaluation with too large a batch does not lose hours of training.

    Arguments:
        work: processes a portion; may be called again with some of its rows after memory ran out.
        progress: receives the rows done and the total.
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
    # Only outside the handler is the error released, and with it everything its frames held.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return False
