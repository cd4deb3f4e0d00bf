"""Rows of plain text: one per line; two aligned files give two columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from stayfinite.readers.data.chunk import Broken, Chunk, Gathered, Source
from stayfinite.readers.data.text_lines import note_encoding, rows_file, text_file


def txt_chunks(source: Source) -> Iterator[Chunk]:
    """The non-blank lines of a text."""
    found = Gathered(source, lambda texts: {"text": texts})
    with rows_file(source, newline=None) as file:
        for number, text in enumerate(file.safe_lines(found), 1):
            if text.strip():
                found.add(text.rstrip("\n"), number, len(text.rstrip("\n")))
                if found.full:
                    yield found.chunk(file.done)
        yield found.chunk(file.done)


def aligned_chunks(source: Source, other: Path, names: tuple[str, str]) -> Iterator[Chunk]:
    """Pair line n of one file with line n of the other."""
    found = Gathered(source, lambda pairs: {name: [pair[side] for pair in pairs] for side, name in enumerate(names)})
    with text_file(source.path, newline=None) as one, text_file(other, newline=None) as two:
        encodings = [note_encoding(source, one), note_encoding(source, two).replace(source.path.name, other.name)]
        source.encoding = "; ".join(filter(None, encodings))
        ended = surplus = 0
        short = other
        for number, (a, b) in enumerate(zip_longest(one.safe_lines(found), two.safe_lines(found)), 1):
            if a is None or b is None:
                ended = ended or number
                surplus, short = number - ended + 1, source.path if a is None else other
                continue
            found.add((a.rstrip("\n"), b.rstrip("\n")), number, len(a) + len(b))
            if found.full:
                yield found.chunk(one.done + two.done)
        if ended:
            why = f"{short.name} ends here, the other file has {surplus} more lines: not aligned"
            found.broken.append(Broken(ended, why, ends=True))
        yield found.chunk(one.done + two.done)
