"""A recipe's stream: a sample to start from, and batches read on demand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stayfinite.readers.data.chunk import Source
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.streaming.files import mark_of
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.rows import Reader, Rows
from stayfinite.recipes.streaming.sampling import batches_of_pass
from stayfinite.recipes.streaming.stream import Make, Stream
from stayfinite.recipes.streaming.windows import Bounds

Row = TypeVar("Row")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReader(ABC, Generic[Row]):
    """Reads the rows of a file.

    Arguments:
        columns: of the recipe.
        tell: whether this process reports skipped rows.
    """

    columns: Any
    tell: bool = True

    def __call__(self, source: Source) -> Iterator[Row]:
        """Yield the rows. Raises LoaderFailed if the file is truncated."""
        return (row for row, _ in self.read(source))

    @abstractmethod
    def read(self, source: Source) -> Iterator[tuple[Row, int]]:
        """Rows with the bytes read so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed(Generic[Row]):
    """Files read on demand."""

    files: Sequence[Source]
    training: list[Row]
    """Sampled rows for the tokenizer and the first batch."""
    validation: list[Row]
    characters: int | None
    """Estimated total of all files."""
    size: Callable[[Row], int]
    """Characters of a row."""

    def batches(self, sampled: float, ranks: int, *, steps: int | None) -> int:
        """Estimated batches per epoch and rank.

        Arguments:
            sampled: batches that the sample makes on one rank.

        Raises:
            UsageError: neither the data size nor the number of steps is known.
        """
        return batches_of_pass(sum(map(self.size, self.training)), sampled, self.characters, ranks, steps=steps)

    def loaded(self, config: Any, reader: Reader, make: Make, place: Place, say: Say, *, pool: int) -> StreamLoader:
        """The batches of this process.

        Arguments:
            config: has ``seed``, ``shuffle_rows`` and ``workers``.
            pool: rows batched together.
        """
        stream = Stream(
            rows=Rows(self.files, reader, seed=config.seed), make=make, pool=pool, seed=config.seed,
            bounds=Bounds(rows=config.shuffle_rows), size=self.size,
        )  # fmt: skip
        return StreamLoader(
            stream, data=mark_of(self.files, config.shuffle_rows, config.seed), rank=place.row_rank,
            ranks=place.row_ranks, workers=config.workers, pin=place.device.type == "cuda", say=say,
        )  # fmt: skip

    def introduce(self, names: Sequence[str], found: str, what: str, say: Say) -> None:
        """Say what was found in the sample."""
        say(f"{', '.join(names)}: {found}. Streaming the data (--stream off loads it into memory)")
        say(f"{len(self.validation):,} {what} for validation; duplicates are kept")


def steps_in_words(an_epoch: int, steps: int | None) -> str:
    """The estimated steps of a stream."""
    planned = "" if steps is None else f"; training takes {steps:,} steps (set --max-steps to change)"
    return f"about {an_epoch:,} steps per epoch{planned}"
