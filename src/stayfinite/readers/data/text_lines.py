"""Lines of a text file: plain or compressed, in any encoding, never more than a bounded piece in memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stayfinite.errors import UsageError
from stayfinite.readers.data.encodings import SAMPLE, Encoding, encoding_of

LONGEST = 16 << 20
"""Characters of a line beyond which it is taken in pieces."""
PACKED: dict[str, Callable[[IO[bytes]], gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
UNTEXTLY = 0.04
"""A share of control characters that no text has."""
_CONTROLS = bytes([*range(1, 9), *range(14, 27), *range(28, 32)])
TORN = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
"""What a compressed file raises that is cut or damaged."""


class TextFile:
    """An opened text file, and how far it has been read."""

    def __init__(self, text: io.TextIOWrapper, raw: IO[bytes], encoding: Encoding) -> None:
        self.text = text
        self.encoding = encoding
        self._raw = raw

    @property
    def done(self) -> int:
        """Bytes on disk that have been read."""
        return self._raw.tell()

    def lines(self) -> Iterator[str]:
        """Every line with its end; one that is longer than `LONGEST` in pieces."""
        readline = self.text.readline
        while line := readline(LONGEST):
            yield line


@contextmanager
def text_file(path: Path, *, newline: str | None) -> Iterator[TextFile]:
    """Open for reading. Bytes that cannot be decoded come as lone surrogates, so that they can be found and named."""
    with path.open("rb") as raw:
        unpack = PACKED.get(path.suffix.lower())
        stream = unpack(raw) if unpack is not None else raw
        try:
            sample = stream.read(SAMPLE)
            stream.seek(0)
        except (OSError, *TORN) as error:
            raise UsageError(f"{path}: cannot be unpacked: {error}", fix="download or write the file again") from error
        encoding = encoding_of(sample)
        if not encoding.wide and len(sample) - len(sample.translate(None, _CONTROLS)) > UNTEXTLY * len(sample):
            raise UsageError(
                f"{path} is not text", fix="name a file of rows: csv, tsv, json, jsonl, parquet, arrow or txt"
            )
        text = io.TextIOWrapper(stream, encoding=encoding.name, errors=_errors(encoding), newline=newline)
        yield TextFile(text, raw, encoding)


def _errors(encoding: Encoding) -> str:
    return "surrogateescape" if encoding.name.startswith("utf-8") else "replace"


def ending(path: Path) -> str:
    """The suffix that tells the format: `.csv` of `pairs.csv.gz`."""
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return name.suffix.lower()
