"""The beginnings of files that are streamed: what training starts from, and how much there is in all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Source
from stayfinite.readers.data.opening import TOLD

SAMPLE = 16 << 20
"""Characters of the sample that tokenizer, validation and number of steps come from."""
SAMPLED_FILES = 16
HELD = 1000
"""Rows of the sample that validate where each of them has to be answered."""


class Looked(NamedTuple):
    """What the beginnings of some files, spread over all of them, tell of the whole."""

    characters: int | None
    """Of all files, about; None where nobody knows how large they are."""
    words: str
    """How they are written, and how much was looked at."""


def look(
    files: Sequence[Source],
    read: Callable[[Source], Iterable[tuple[Any, int]]],
    keep: Callable[[Any], None],
    *,
    size: Callable[[Any], int],
    most: int = SAMPLE,
) -> Looked:
    """Read the beginnings of files, all alike on every rank.

    Arguments:
        read: gives the rows of a file, each with the bytes of it that were read so far.
        keep: is given each row of the sample.
        size: of a row, in characters.
        most: characters in all.

    Raises:
        UsageError: a file cannot be read.
        LoaderFailed: one is cut.
    """
    stride = max(1, -(-len(files) // SAMPLED_FILES))
    chosen = files[::stride]
    seen = done = 0
    for source in chosen:
        characters, ended, stop = 0, 0, -1
        for row, ended in read(source):
            # What is counted ends with a chunk, as do the bytes that it took.
            if characters > most // len(chosen):
                stop = ended if stop < 0 else stop
                if ended != stop:
                    break
            else:
                keep(row)
            characters += size(row)
        seen, done = seen + characters, done + (stop if stop >= 0 else ended)
    whole = sum(file.size for file in files)
    kinds = ", ".join(sorted({TOLD[file.kind] for file in files}))
    return Looked(
        characters=whole * seen // done if whole and done else None,
        words=f"{len(files):,} files ({kinds}), {whole / 2**30:.2f} GiB; looked at the beginning of {len(chosen):,} of "
        "them",
    )


def batches_of_pass(sampled: int, batches: float, characters: int | None, ranks: int, *, steps: int | None) -> int:
    """Batches of a pass over all files on each rank, about: as many as the sample leads one to expect.

    Arguments:
        sampled: characters of the sample that is trained on.
        batches: that these make.
        characters: of all files.
        steps: that are asked for.

    Raises:
        UsageError: nobody knows how large the data is, nor how many steps are asked for.
    """
    if characters is not None:
        return max(1, round(batches * characters / max(1, sampled) / ranks))
    if steps is None:
        raise UsageError("the hub does not say how large the data is", fix="--max-steps N")
    return steps
