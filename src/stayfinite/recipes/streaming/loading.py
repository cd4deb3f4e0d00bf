"""Assemble a recipe's stream from its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stayfinite.readers.data.chunk import Source
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.streaming.files import mark_of
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.rows import Reader, Rows
from stayfinite.recipes.streaming.stream import Make, Stream
from stayfinite.recipes.streaming.windows import Bounds


def stream_loader(
    config: Any,
    files: Sequence[Source],
    reader: Reader,
    make: Make,
    place: Place,
    say: Callable[[str], None],
    *,
    pool: int,
    size: Callable[[Any], int] = len,
) -> StreamLoader:
    """The batches of this process.

    Arguments:
        config: has ``seed``, ``shuffle_rows`` and ``workers``.
        pool: rows batched together.
        size: of a row, in characters.
    """
    stream = Stream(
        rows=Rows(files, reader, seed=config.seed), make=make, pool=pool, seed=config.seed,
        bounds=Bounds(rows=config.shuffle_rows), size=size,
    )  # fmt: skip
    return StreamLoader(
        stream, data=mark_of(files, config.shuffle_rows, config.seed), rank=place.row_rank, ranks=place.row_ranks,
        workers=config.workers, pin=place.device.type == "cuda", say=say,
    )  # fmt: skip
