"""Open data files as bytes: plain, compressed, or in a zip archive; truncated files and zip bombs are errors.

A member of an archive is addressed like a file in a directory: `corpus.zip/corpus.de-en.en`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from stayfinite.errors import MissingExtra, UsageError

ZIP = ".zip"
FREE = 256 << 20  # bytes that a compressed file may always unpack to
RATIO = 250
"""Compression ratio allowed beyond that. Text reaches 3 to 20; only a bomb comes near 1,000."""
MOST_MEMBERS = 100_000
PIECE = 1 << 10  # bytes of zstd unpacked at once: four bytes can expand to a block of 128 KiB


class Unpackable(OSError):
    """A compressed file that is truncated, damaged or a bomb."""


TORN = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)
"""Errors of the libraries besides OSError; `unpacked` turns them into `Unpackable`."""


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """A stream of the unpacked contents, and a function that returns the bytes read from disk.

    Raises UsageError if it cannot be opened, MissingExtra for zstd without `zstandard`.
    """
    if (archive := archive_of(path)) is not None:
        with opened_zip(archive) as held, _member(held, archive, path) as stream:
            inner = unpacker(path)
            if inner is None:
                yield io.BufferedReader(stream, 1 << 16), stream.tell
            else:
                with inner(io.BufferedReader(stream)) as plain:
                    yield _bounded(plain, size_of(path), path), stream.tell
        return
    with path.open("rb") as raw:
        unpack = unpacker(path)
        if unpack is None:
            yield raw, raw.tell
        else:
            with unpack(raw) as plain:
                yield _bounded(plain, path.stat().st_size, path), raw.tell


def unpacker(path: Path) -> Callable[[IO[bytes]], Any] | None:
    """The decompressor for this file name; None if it is not compressed."""
    known: dict[str, Callable[[IO[bytes]], Any]] = {
        ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
        ".bz2": bz2.BZ2File,
        ".xz": lzma.LZMAFile,
        ".zst": lambda raw: _zstd(raw, path),
    }
    return known.get(path.suffix.lower())


PACKED = frozenset({".gz", ".bz2", ".xz", ".zst"})


def size_of(path: Path) -> int:
    """Bytes on disk; for an archive member, its unpacked size."""
    archive = archive_of(path)
    if archive is None:
        return path.stat().st_size
    with opened_zip(archive) as held:
        return held.getinfo(_inside(archive, path)).file_size


def archive_of(path: Path) -> Path | None:
    """The zip archive that contains this path; None for a path on disk."""
    if path.exists():
        return None
    return next((parent for parent in path.parents if parent.suffix.lower() == ZIP and parent.is_file()), None)


def members_of(archive: Path) -> list[Path]:
    """The files of an archive, as paths inside it. Raises UsageError if it is damaged, encrypted or a bomb."""
    with opened_zip(archive) as held:
        entries = [entry for entry in held.infolist() if not entry.is_dir()]
    if len(entries) > MOST_MEMBERS:
        raise UsageError(
            f"{archive} holds {len(entries):,} files (limit {MOST_MEMBERS:,})", fix="unpack it and name the files"
        )
    for entry in entries:
        if entry.flag_bits & 1:
            raise UsageError(f"{archive}: {entry.filename} is encrypted", fix="unpack it with its password first")
        if entry.file_size > max(FREE, RATIO * max(1, entry.compress_size)):
            raise UsageError(
                f"{archive}: {entry.filename} unpacks from {entry.compress_size:,} to {entry.file_size:,} bytes: "
                "suspicious",
                fix="if you trust the archive, unpack it yourself",
            )
    names = [entry.filename for entry in entries]
    return [archive / name for name in names if ".." not in Path(name).parts and not Path(name).is_absolute()]


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive. Raises UsageError if it is truncated or damaged."""
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, ValueError, *TORN) as error:
        raise UsageError(f"{path} is not a valid zip archive: {error}", fix="download it again") from error
    with archive:
        yield archive


@contextmanager
def _member(held: zipfile.ZipFile, archive: Path, path: Path) -> Iterator[Any]:
    try:
        stream = held.open(_inside(archive, path))
    except (OSError, KeyError, RuntimeError, *TORN) as error:
        raise UsageError(f"{archive}: cannot open {path.name}: {error}", fix="download it again") from error
    with stream:
        yield _Torn(stream)


def _inside(archive: Path, path: Path) -> str:
    return path.relative_to(archive).as_posix()


def _zstd(raw: IO[bytes], path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra.of("zstandard", extra="data", what_for=f"reading {path.name}") from None
    return _Whole(zstandard.ZstdDecompressor(max_window_size=1 << 27), raw)


class _Whole(io.RawIOBase):
    """A stream of zstd frames. The library's own reader treats a truncated frame as complete."""

    def __init__(self, unpacker: Any, raw: IO[bytes]) -> None:
        self._new, self._raw = unpacker.decompressobj, raw
        self._inner: Any = None
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            ended = self._inner is not None and self._inner.eof
            piece = (self._inner.unused_data if ended else b"") or self._raw.read(PIECE)
            if not piece:
                if self._inner is not None and not ended:
                    raise Unpackable("the compressed stream ends in the middle")
                return 0
            if self._inner is None or ended:
                self._inner = self._new()
            try:
                self._ready = self._inner.decompress(piece)
            except Exception as error:  # zstandard.ZstdError, which exists only if it is installed
                raise Unpackable(str(error)) from error
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def _bounded(stream: Any, size: int, path: Path) -> IO[bytes]:
    return io.BufferedReader(_Torn(stream, most=max(FREE, RATIO * size), name=path.name), 1 << 16)


class _Torn(io.RawIOBase):
    """Raises `Unpackable` if the stream below is damaged or exceeds its limit."""

    def __init__(self, below: Any, most: int | None = None, name: str = "") -> None:
        self._below, self._most, self._given, self._name = below, most, 0, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            piece = self._below.read(len(buffer))
        except Unpackable:
            raise
        except (OSError, *TORN) as error:
            raise Unpackable(str(error)) from error
        self._given += len(piece)
        if self._most is not None and self._given > self._most:
            raise Unpackable(
                f"{self._name} unpacks to over {self._most >> 20:,} MiB, {RATIO} times its size: suspicious"
            )
        buffer[: len(piece)] = piece
        return len(piece)

    def tell(self) -> int:
        return self._given
