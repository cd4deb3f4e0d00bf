"""Skip unusable rows of a stream with a message, unless the rest of the file is lost."""

from __future__ import annotations

import sys
from pathlib import Path

from torch.utils.data import get_worker_info

from stayfinite.errors import LoaderFailed
from stayfinite.readers.data.chunk import Broken

MOST = 3
"""Skipped rows reported per file."""


class PassedOver:
    """Reports the first skipped rows of a file.

    Arguments:
        tell: whether this process reports; among its workers only the first does.
    """

    def __init__(self, *, tell: bool = True) -> None:
        self._tell = tell
        self._told = 0

    def __call__(self, path: Path, place: Broken) -> None:
        """Skip a broken row. Raises LoaderFailed if nothing after it can be read."""
        refuse_cut(path, place)
        self.row(f"{path}:{place.line}: {place.why}")

    def row(self, words: str) -> None:
        worker = get_worker_info()
        if self._tell and self._told < MOST and (worker is None or worker.id == 0):
            self._told += 1
            sys.stderr.write(f"{words}: row skipped\n")


def refuse_cut(path: Path, place: Broken) -> None:
    """Raise LoaderFailed if the rest of the file cannot be read."""
    if place.ends:
        raise LoaderFailed(
            f"{path}:{place.line}: {place.why}", code="shard-cut",
            fix=f"download or write {path.name} again, then start again with the same command",
        )  # fmt: skip
