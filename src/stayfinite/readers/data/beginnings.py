"""Read only the beginnings of files that are too large to read in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stayfinite.readers.data.chunk import Chunk, Source
from stayfinite.readers.data.packed import PACKED

LARGE = 1 << 30  # bytes of text above which only the beginnings are read
READ = 256 << 20  # bytes on disk to read from larger files
FILES = 256
PACKS = 4  # typical compression ratio of text


def text_size(sources: Sequence[Source]) -> int:
    """Approximate bytes of text in these files."""
    return sum(each.size * (PACKS if each.path.suffix.lower() in PACKED else 1) for each in sources)


def beginnings(sources: Sequence[Source], *, large: int = LARGE, read: int = READ) -> list[Source]:
    """Return small files as they are; from large ones a spread selection, each limited to its share of bytes."""
    if text_size(sources) <= large:
        return list(sources)
    chosen = list(sources)[:: -(-len(sources) // FILES)]
    for source in chosen:
        source.most = max(1, read // len(chosen) // (PACKS if source.path.suffix.lower() in PACKED else 1))
        source.chunks = _Beginning(source)
    return chosen


class _Beginning:
    """The chunks of a file up to its share of bytes."""

    def __init__(self, source: Source) -> None:
        self._source, self._all = source, source.chunks

    def __call__(self) -> Iterator[Chunk]:
        for chunk in self._all():
            yield chunk
            if chunk.done >= self._source.most:
                return


def told_beginnings(all_of_them: Sequence[Source], read: Sequence[Source]) -> str:
    """Describe which part of large files was read; empty if everything was."""
    if not any(source.most for source in read):
        return ""
    size, looked = sum(source.size for source in all_of_them), sum(source.share for source in read)
    return (
        f"the beginnings of {len(read):,} of {len(all_of_them):,} files, {looked / 1e6:,.0f} MB of "
        f"{size / 1e9:,.1f} GB; --whole reads all"
    )
