"""The rows of all files in one order that every rank agrees on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from stayfinite.errors import LoaderFailed, StayfiniteError
from stayfinite.readers.data.chunk import Source

Reader = Callable[[Source], Iterator[Any]]
"""From a file to its rows, the same each time."""


class Row(NamedTuple):
    """A row, and where it stands."""

    file: int
    """Number of the file in the order of the epoch."""
    number: int
    """Number of the row in the file, from 0."""
    value: Any


class Rows:
    """The rows of an epoch: the files in a new order each time, the rows of a file as they stand in it.

    Arguments:
        files: that the rows come from.
        reader: gives the rows of one.
        seed: of the order of files.
    """

    def __init__(self, files: Sequence[Source], reader: Reader, *, seed: int = 0) -> None:
        self._files = files
        self._reader = reader
        self._seed = seed

    def read(self, epoch: int, file: int = 0, row: int = 0) -> Iterator[Row]:
        """The rows of an epoch from this place on.

        Raises:
            LoaderFailed: a file is gone, cut or damaged.
        """
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
