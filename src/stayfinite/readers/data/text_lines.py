"""Lines of a text file: plain or compressed, in any encoding, with bounded memory."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Broken, Gathered, Source
from stayfinite.readers.data.packed import PACKED, open_bytes

SAMPLE = 1 << 20
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OUTSIDE_ASCII = re.compile(rb"[\x80-\xff]")


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding, and the reason if it is not plain UTF-8."""

    name: str = "utf-8"
    mark: bool = False
    """Has a byte order mark."""
    why: str = ""
    """Why it cannot be UTF-8; empty if it is."""

    @property
    def wide(self) -> bool:
        """Whether a character takes two or four bytes."""
        return "16" in self.name or "32" in self.name


def encoding_of(sample: bytes) -> Encoding:
    """The encoding of a file, from its first bytes."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            why = "" if name == "utf-8-sig" else f"starts with the byte order mark of {name.upper()}"
            return Encoding(name, mark=True, why=why)
    if (wide := _without_mark(sample)) is not None:
        return Encoding(wide, why=f"every other byte is 0, as in {wide.upper()}")
    bad = _undecodable(sample)
    outside = len(_OUTSIDE_ASCII.findall(sample))
    if not bad or len(bad) * 2 < outside:
        # Isolated bad bytes are reported by row.
        return Encoding()
    first = bad[0]
    line = sample.count(b"\n", 0, first) + 1
    return Encoding(_legacy(sample), why=f"byte 0x{sample[first]:02x} on line {line} is not UTF-8")


def _without_mark(sample: bytes) -> str | None:
    pairs = len(sample) // 2
    if pairs < 8:
        return None
    even, odd = sample[0 : 2 * pairs : 2].count(0), sample[1 : 2 * pairs : 2].count(0)
    if odd > 0.4 * pairs and even < 0.05 * pairs:
        return "utf-16-le"
    if even > 0.4 * pairs and odd < 0.05 * pairs:
        return "utf-16-be"
    return None


def _undecodable(sample: bytes) -> list[int]:
    """Offsets of invalid UTF-8, at most a few thousand; a character cut at the end of the sample does not count."""
    decoder, found, start = codecs.getincrementaldecoder("utf-8")(), list[int](), 0
    while start < len(sample) and len(found) < 4096:
        try:
            decoder.decode(sample[start:])
            break
        except UnicodeDecodeError as error:
            found.append(start + error.start)
            start += error.start + 1
            decoder.reset()
    return found


def _legacy(sample: bytes) -> str:
    """The most likely legacy encoding."""
    text = sample[: 64 << 10]
    for name in ("gb18030", "shift_jis", "euc_kr"):
        try:
            decoded = codecs.getincrementaldecoder(name)().decode(text)
        except UnicodeDecodeError:
            continue
        wide = sum("\u3040" <= c <= "\u30ff" or "\u4e00" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7a3" for c in decoded)
        outside = sum(c > "\x7f" for c in decoded)
        runs = sum(map(len, re.findall(rb"[\x80-\xff][\x40-\xff][\x80-\xff][\x40-\xff]+", text)))
        # Western accented letters occur singly between ASCII ones; Asian ones in runs.
        if wide > 0.9 * outside and runs > 0.6 * len(_OUTSIDE_ASCII.findall(text)):
            return name
    return "cp1252"


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

    def safe_lines(self, found: Gathered) -> Iterator[str]:
        """The same, ended by a broken place where reading fails."""
        lines, number = self.lines(), 0
        while True:
            number += 1
            try:
                line = next(lines)
            except StopIteration:
                return
            except (UnicodeError, OSError) as error:
                found.broken.append(Broken(number, f"reading stopped here: {error}", ends=True))
                return
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


@contextmanager
def rows_file(source: Source, *, newline: str | None) -> Iterator[TextFile]:
    """Open the text of a source, and note its encoding."""
    with text_file(source.path, newline=newline) as file:
        source.encoding = note_encoding(source, file)
        yield file


def note_encoding(source: Source, file: TextFile) -> str:
    """Describe the file's encoding; a byte order mark is added to the remarks."""
    if file.encoding.mark:
        source.remarks.append(f"{source.path.name} starts with a byte order mark")
    return f"{source.path.name}: {file.encoding.why}; read as {file.encoding.name}" if file.encoding.why else ""
