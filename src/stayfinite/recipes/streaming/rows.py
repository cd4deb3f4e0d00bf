"""The rows of all files, in the same order on every rank."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from stayfinite.errors import LoaderFailed, StayfiniteError
from stayfinite.readers.data.chunk import Source

Reader = Callable[[Source], Iterator[Any]]
"""Yields the rows of a file, the same each time."""


class Row(NamedTuple):
    """A row and its position."""

    file: int
    """Index of the file in the epoch's order."""
    number: int
    """Index of the row in the file."""
    value: Any


class Rows:
    """Rows of an epoch: files in a new order, rows of a file in stored order.

    Arguments:
        reader: yields the rows of a file.
        seed: of the file order.
    """

    def __init__(self, files: Sequence[Source], reader: Reader, *, seed: int = 0) -> None:
        self._files = files
        self._reader = reader
        self._seed = seed

    def read(self, epoch: int, file: int = 0, row: int = 0) -> Iterator[Row]:
        """Rows of an epoch from this position. Raises LoaderFailed if a file is missing, truncated or damaged."""
        order = list(range(len(self._files)))
        random.Random(f"files {self._seed} {epoch}").shuffle(order)
        for number in range(file, len(order)):
            source = self._files[order[number]]
            first = row if number == file else 0
            for at, value in enumerate(islice(self._of(source), first, None), first):
                yield Row(number, at, value)

    def _of(self, source: Source) -> Iterator[Any]:
        try:
            yield from self._reader(source)
        except LoaderFailed:
            raise
        except FileNotFoundError:
            raise LoaderFailed(
                f"{source.path} was removed during training", code="shard-gone", fix=(
                    "restore it, then resume with the same command"
                ),
            ) from None  # fmt: skip
        except OSError as error:
            raise LoaderFailed(
                f"cannot read {source.path}: {error.strerror or error}", code="shard-unreadable",
                fix="fix it, then resume with the same command",
            ) from error  # fmt: skip
        except StayfiniteError as error:
            raise LoaderFailed(error.message, code="shard-unreadable", fix=error.fix) from error
