"""Lines of a text file: plain or compressed, in any encoding, with bounded memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stayfinite.errors import UsageError
from stayfinite.readers.data.encodings import SAMPLE, Encoding, encoding_of
from stayfinite.readers.data.packed import PACKED, open_bytes

LONGEST = 16 << 20  # longer lines are split into pieces of this many characters
UNTEXTLY = 0.04  # a share of control characters that text never reaches
_CONTROLS = bytes([*range(1, 9), *range(14, 27), *range(28, 32)])


class TextFile:
    """An open text file that tracks how far it was read."""

    def __init__(self, text: io.TextIOWrapper, done: Callable[[], int], encoding: Encoding) -> None:
        self.text = text
        self.encoding = encoding
        self._done = done

    @property
    def done(self) -> int:
        """Bytes read from disk."""
        return self._done()

    def lines(self) -> Iterator[str]:
        """Yield every line with its line end; lines longer than `LONGEST` in pieces."""
        readline = self.text.readline
        while line := readline(LONGEST):
            yield line


@contextmanager
def text_file(path: Path, *, newline: str | None) -> Iterator[TextFile]:
    """Open for reading. Undecodable bytes become lone surrogates, so that they can be reported."""
    with open_bytes(path) as (sampled, _):
        try:
            sample = sampled.read(SAMPLE)
        except OSError as error:
            raise UsageError(f"cannot unpack {path}: {error}", fix="download or write the file again") from error
    encoding = encoding_of(sample)
    if not encoding.wide and len(sample) - len(sample.translate(None, _CONTROLS)) > UNTEXTLY * len(sample):
        raise UsageError(f"{path} is not text", fix="name a file of rows: csv, tsv, json, jsonl, parquet, arrow or txt")
    with open_bytes(path) as (stream, done):
        errors = "surrogateescape" if encoding.name.startswith("utf-8") else "replace"
        text = io.TextIOWrapper(stream, encoding=encoding.name, errors=errors, newline=newline)
        yield TextFile(text, done, encoding)


def ending(path: Path) -> str:
    """The suffix that gives the format: `.csv` of `pairs.csv.gz`."""
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return name.suffix.lower()
