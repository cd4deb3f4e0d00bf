"""Rows of plain text: one per line; two aligned files give two columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from stayfinite.readers.data.chunk import CHUNK_ROWS, CHUNK_SIZE, Broken, Chunk, Source
from stayfinite.readers.data.csv_rows import note_encoding
from stayfinite.readers.data.text_lines import text_file


def txt_chunks(source: Source) -> Iterator[Chunk]:
    """The non-blank lines of a text."""
    texts: list[str] = []
    lines: list[int] = []
    size = 0
    with text_file(source.path, newline=None) as file:
        source.encoding = note_encoding(source, file)
        broken: list[Broken] = []
        for number, text in enumerate(_safe(file.lines(), broken), 1):
            text = text.rstrip("\n")
            if not text.strip():
                continue
            texts.append(text)
            lines.append(number)
            size += len(text)
            if len(texts) >= CHUNK_ROWS or size > CHUNK_SIZE:
                yield Chunk(path=source.path, columns={"text": texts}, lines=lines, done=file.done)
                texts, lines, size = [], [], 0
        yield Chunk(path=source.path, columns={"text": texts}, lines=lines, broken=broken, done=file.done)


def aligned_chunks(source: Source, other: Path, names: tuple[str, str]) -> Iterator[Chunk]:
    """Pair line n of one file with line n of the other."""
    with ExitStack() as stack:
        one = stack.enter_context(text_file(source.path, newline=None))
        two = stack.enter_context(text_file(other, newline=None))
        encodings = [note_encoding(source, one), note_encoding(source, two).replace(source.path.name, other.name)]
        source.encoding = "; ".join(filter(None, encodings))
        left: list[str] = []
        right: list[str] = []
        lines: list[int] = []
        broken: list[Broken] = []
        ended = size = surplus = 0
        short = other
        for number, (a, b) in enumerate(zip_longest(_safe(one.lines(), broken), _safe(two.lines(), broken)), 1):
            if a is None or b is None:
                ended = ended or number
                surplus, short = number - ended + 1, source.path if a is None else other
                continue
            left.append(a.rstrip("\n"))
            right.append(b.rstrip("\n"))
            lines.append(number)
            size += len(a) + len(b)
            if len(left) >= CHUNK_ROWS or size > CHUNK_SIZE:
                yield Chunk(
                    path=source.path,
                    columns={names[0]: left, names[1]: right},
                    lines=lines,
                    broken=broken,
                    done=one.done + two.done,
                )
                left, right, lines, broken, size = [], [], [], [], 0
        if ended:
            why = f"{short.name} ends here, the other file has {surplus} more lines: not aligned"
            broken.append(Broken(ended, why, ends=True))
        columns = {names[0]: left, names[1]: right}
        yield Chunk(path=source.path, columns=columns, lines=lines, broken=broken, done=one.done + two.done)


def _safe(lines: Iterator[str], broken: list[Broken]) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        try:
            line = next(lines)
        except StopIteration:
            return
        except (UnicodeError, OSError) as error:
            broken.append(Broken(number, f"reading stopped here: {error}", ends=True))
            return
        yield line
