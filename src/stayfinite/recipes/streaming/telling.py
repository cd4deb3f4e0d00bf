"""Rows of a stream that cannot be used: passed over and told, unless the rest of their file is lost with them."""

from __future__ import annotations

import sys
from pathlib import Path

from torch.utils.data import get_worker_info

from stayfinite.errors import LoaderFailed
from stayfinite.readers.data.chunk import Broken

MOST = 3
"""Rows of a file that are told of."""


class PassedOver:
    """Tells of the first rows of a file that are passed over.

    Arguments:
        tell: whether this process does; of its workers the first one.
    """

    def __init__(self, *, tell: bool = True) -> None:
        self._tell = tell
        self._told = 0

    def __call__(self, path: Path, place: Broken) -> None:
        """Pass over a place; stops with `LoaderFailed` where nothing after it can be read."""
        refuse_cut(path, place)
        self.row(f"{path}:{place.line}: {place.why}")

    def row(self, words: str) -> None:
        """Pass over a row, for this reason."""
        worker = get_worker_info()
        if self._tell and self._told < MOST and (worker is None or worker.id == 0):
            self._told += 1
            sys.stderr.write(f"{words}: row skipped\n")


def refuse_cut(path: Path, place: Broken) -> None:
    """Stop at a file of which the rest cannot be read; single rows that cannot are passed over.

    Raises:
        LoaderFailed: this is such a file.
    """
    if place.ends:
        raise LoaderFailed(
            f"{path}:{place.line}: {place.why}", code="shard-cut",
            fix=f"download or write {path.name} again, then start again with the same command",
        )  # fmt: skip
