"""Sample the beginnings of streamed files to size the training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Source
from stayfinite.readers.data.opening import TOLD

SAMPLE = 16 << 20
"""Characters sampled for tokenizer, validation and number of steps."""
SAMPLED_FILES = 16
HELD = 1000
"""Sampled rows held out where each needs a generated answer."""


class Looked(NamedTuple):
    """Summary of the sample."""

    characters: int | None
    """Estimated total of all files; None if unknown."""
    words: str
    """Formats and sample size, in words."""


def look(
    files: Sequence[Source],
    read: Callable[[Source], Iterable[tuple[Any, int]]],
    keep: Callable[[Any], None],
    *,
    size: Callable[[Any], int],
    most: int = SAMPLE,
) -> Looked:
    """Read the beginnings of files, the same on every rank.

    Arguments:
        read: yields rows of a file with the bytes read so far.
        keep: receives each sampled row.
        size: of a row, in characters.
        most: characters in total.

    Raises:
        UsageError: a file is unreadable.
        LoaderFailed: a file is truncated.
    """
    stride = max(1, -(-len(files) // SAMPLED_FILES))
    chosen = files[::stride]
    seen = done = 0
    for source in chosen:
        characters, ended, stop = 0, 0, -1
        for row, ended in read(source):
            # Count up to the end of a chunk, as the byte positions do.
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
    """Estimated batches per rank and pass over all files.

    Arguments:
        sampled: characters of the training sample.
        batches: made from them.
        characters: of all files.
        steps: requested number.

    Raises:
        UsageError: neither the size nor the number of steps is known.
    """
    if characters is not None:
        return max(1, round(batches * characters / max(1, sampled) / ranks))
    if steps is None:
        raise UsageError("the hub does not say how large the data is", fix="--max-steps N")
    return steps
