"""Open a log by path or feed it in chunks. The format is detected from the content."""

from __future__ import annotations

import codecs
import json
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from stayfinite.core.series import RunSeries
from stayfinite.errors import UsageError
from stayfinite.readers.logs.lines import Decoder, LineSplitter
from stayfinite.readers.logs.lone_loss import with_lone_loss
from stayfinite.readers.logs.records import CsvTable, JsonDocument, separator
from stayfinite.readers.logs.tensorboard import TensorBoard, is_header
from stayfinite.readers.logs.text import TextReader
from stayfinite.readers.logs.wrapping import Wrapping, wrapping_of

HEAD = 4_096  # bytes used to decide

_NO_TEXT = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]|\xef\xbf\xbd")
_MAGIC = (
    b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"PK\x03\x04", b"%PDF", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05",
    b"\x7fELF", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"\x93NUMPY", b"\x89HDF", b"SQLite format 3", b"Rar!",
    b"(\xb5/\xfd",
)  # fmt: skip


def sniff(head: bytes, source: str) -> str:
    """Return ``gzip``, ``tensorboard``, ``json``, ``csv``, ``text`` or ``junk``."""
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if is_header(head[:12]) or ("tfevents" in source and b"\0" in head[:16]):
        return "tensorboard"
    if head.startswith(_MAGIC):
        return "junk"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = head[: len(head) // 2 * 2].decode("utf-16", "replace")
    else:
        if len(head) >= 64 and (len(_NO_TEXT.findall(head)) > len(head) // 10 or head.count(0) > len(head) // 2):
            return "text" if not head.strip(b"\0") else "junk"
        text = head.decode("utf-8-sig", "replace")
    return _sniff_text(text.replace("\0", "").lstrip("\ufeff"), source)


def _sniff_text(text: str, source: str) -> str:
    stripped = text.lstrip()
    if stripped[:1] in {"{", "["} and _is_document(stripped, source):
        return "json"
    lines = [line.rstrip("\r") for line in stripped.split("\n", 2) if line.strip()]
    mark = separator(lines[0]) if lines else ""
    if mark and (len(lines) == 1 or mark in lines[1]):
        return "csv"
    return "text"


def _is_document(text: str, source: str) -> bool:
    if re.match(r"\[\s*\{\s*\"", text) or '"log_history"' in text:
        return True
    if not re.match(r"\{\s*\"", text):
        return False
    first = text.split("\n", 1)[0]
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return source.endswith(".json")
    # A single object on the first line is either the first of many or the whole file.
    return source.endswith(".json") and not text[len(first) :].strip()


CHUNK = 1 << 16
MOST_PACKED = 4  # nesting depth of gzip and of what collectors put around lines
MOST_UNPACKED = 4 << 30  # bytes read from a compressed log; the rest is ignored


class UnreadableLog(UsageError):
    """The file cannot be opened or is not a regular file."""


class _Reader(Protocol):
    def feed(self, chunk: bytes) -> None: ...

    def close(self) -> None: ...

    @property
    def series(self) -> list[RunSeries]: ...


class LogReader:
    """Reads a growing log: feed it chunks of any size and look at ``series`` at any time."""

    def __init__(self, source: str, *, packed: int = 0) -> None:
        self.source = source
        self._packed = packed
        """How many layers enclose this content."""
        self._head = b""
        self._reader: _Reader | None = None

    def feed(self, chunk: str | bytes) -> None:
        """Read a chunk. An incomplete last line waits for its end."""
        if isinstance(chunk, str):
            chunk = chunk.encode("utf-8", "replace")
        if self._reader is None:
            # A log truncated while its writer kept its position starts with NUL bytes.
            self._head += chunk if self._head else chunk.lstrip(b"\0")
            if len(self._head) < HEAD:
                return
            chunk, self._head = self._head, b""
            self._reader = _reader(chunk[:HEAD], self.source, self._packed)
        self._reader.feed(chunk)

    def close(self) -> None:
        """Read the last line even if it has no line end."""
        if self._reader is None:
            self._reader = _reader(self._head, self.source, self._packed)
            self._reader.feed(self._head)
            self._head = b""
        self._reader.close()

    @property
    def series(self) -> list[RunSeries]:
        """One series per rank, the main one first."""
        reader = self._reader
        if reader is None:  # too short to detect the format: try again at each call
            reader = _reader(self._head, self.source, self._packed)
            reader.feed(self._head)
        return [with_lone_loss(each) for each in reader.series]


def read_log(path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> list[RunSeries]:
    """Return the series of a file, one per rank, the main one first.

    An unrecognized file gives one series without points and with an empty kind. ``progress(bytes_read, bytes_total)``
    is called now and then. Raises ``UnreadableLog`` if the file cannot be opened.
    """
    place = Path(path)
    reader = LogReader(str(path))
    try:
        if not place.is_file():
            place.stat()
            raise UnreadableLog(f"{place} is not a file", fix="name a log file")
        total, read = place.stat().st_size, 0
        with place.open("rb") as file:
            while chunk := file.read(CHUNK):
                reader.feed(chunk)
                read += len(chunk)
                if progress is not None:
                    progress(read, max(total, read))
    except (OSError, ValueError) as error:
        if isinstance(error, UnreadableLog):
            raise
        why = getattr(error, "strerror", None) or str(error)
        raise UnreadableLog(f"cannot read {place}: {why}", fix="check the path and its permissions") from error
    reader.close()
    return reader.series


def _reader(head: bytes, source: str, packed: int = 0) -> _Reader:
    kind = sniff(head, source)
    if kind == "gzip":
        if packed >= MOST_PACKED:
            raise UnreadableLog(
                (f"{source} is compressed more than {MOST_PACKED} times"), fix=f"unpack it: gunzip {source}"
            )
        return _Unpacking(source, packed + 1)
    if kind == "tensorboard":
        return TensorBoard(source)
    if kind == "json":
        return _Decoded(JsonDocument(source))
    if kind == "csv":
        return _Decoded(CsvTable(source))
    if kind == "junk":
        return _Junk(source)
    if packed < MOST_PACKED and (wrapping := _wrapping(head)) is not None:
        return _Unwrapping(source, wrapping, packed + 1)
    return _Decoded(TextReader(source))


def _wrapping(head: bytes) -> Wrapping | None:
    """What is around each of the first lines; the last one may be incomplete."""
    splitter = LineSplitter()
    lines = splitter.feed(head)
    return wrapping_of(lines if len(head) == HEAD else [*lines, *splitter.close()])


class _Decoded:
    """Feeds a reader of lines or of text with what its bytes are."""

    def __init__(self, reader: TextReader | CsvTable | JsonDocument) -> None:
        self._reader: Any = reader
        self._bytes = Decoder() if isinstance(reader, JsonDocument) else LineSplitter()

    def feed(self, chunk: bytes) -> None:
        self._reader.feed(self._bytes.feed(chunk))

    def close(self) -> None:
        self._reader.feed(self._bytes.close())
        self._reader.close()

    @property
    def series(self) -> list[RunSeries]:
        found: list[RunSeries] = self._reader.series
        return found


class _Unwrapping:
    """Takes off what a collector put around every line."""

    def __init__(self, source: str, wrapping: Wrapping, packed: int) -> None:
        self._inside = LogReader(source, packed=packed)
        self._lines = LineSplitter()
        self._wrapping = wrapping

    def feed(self, chunk: bytes) -> None:
        self._pass_on(self._lines.feed(chunk))

    def close(self) -> None:
        self._pass_on(self._lines.close())
        self._inside.close()

    def _pass_on(self, lines: list[str]) -> None:
        if lines:
            self._inside.feed("".join(f"{self._wrapping.unwrap(line)}\n" for line in lines))

    @property
    def series(self) -> list[RunSeries]:
        return self._inside.series


class _Unpacking:
    """Unpacks gzip, at most ``MOST_UNPACKED`` bytes; damage ends the reading."""

    def __init__(self, source: str, packed: int) -> None:
        self._inside = LogReader(source.removesuffix(".gz"), packed=packed)
        self._inside.source = source
        self._unpacker = zlib.decompressobj(wbits=31)
        self._left = MOST_UNPACKED
        self._done = False

    def feed(self, chunk: bytes) -> None:
        while chunk and not self._done:
            try:
                text = self._unpacker.decompress(chunk, CHUNK)
            except zlib.error:
                self._done = True
                return
            self._left -= len(text)
            self._inside.feed(text)
            chunk = self._unpacker.unconsumed_tail
            if self._unpacker.eof:  # concatenated gzip files
                chunk = self._unpacker.unused_data.lstrip(b"\0")
                self._unpacker = zlib.decompressobj(wbits=31)
            self._done = self._left <= 0

    def close(self) -> None:
        self._inside.close()

    @property
    def series(self) -> list[RunSeries]:
        return self._inside.series


class _Junk:
    """Not a log: only counts lines."""

    def __init__(self, source: str) -> None:
        self._series = RunSeries(source)

    def feed(self, chunk: bytes) -> None:
        self._series.lines += chunk.count(b"\n")

    def close(self) -> None:
        """Do nothing: no line is buffered."""

    @property
    def series(self) -> list[RunSeries]:
        return [self._series]
