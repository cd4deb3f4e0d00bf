"""The pickle in a torch.save file: a zip member since 1.6, before that the fourth of five. Nothing is unpacked."""

from __future__ import annotations

import io
import os
import struct
from typing import BinaryIO, NamedTuple, cast

from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.inert import Bounds, Bytes, Inert, read_inert

LARGEST_TABLE = 128 << 20


class Entry(NamedTuple):
    """One member of an archive."""

    name: str
    stored: bool
    """Whether it is uncompressed; torch never compresses."""

    size: int
    header: int
    """Offset of its local header."""


class Part:
    """The part of a file that holds an archive, as a file of its own."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file = file
        self._start, self.size = start, size
        self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, length: int = LARGEST_TABLE) -> bytes:
        """Read so many bytes; fewer at the end."""
        self._file.seek(self._start + self._at)
        data = self._file.read(max(0, min(length, self.size - self._at)))
        self._at += len(data)
        return data


def read_directory(part: Part) -> dict[str, Entry]:
    """All members by name. Raises Malformed if the directory is invalid or missing, as in a truncated archive."""
    import zipfile

    try:
        found = zipfile.ZipFile(cast("BinaryIO", part)).infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error) as error:
        if "not a zip file" in str(error):
            text = f"it is truncated: no zip directory at the end of its {part.size:,} bytes"
            raise Malformed(text, kind="truncated") from error
        raise Malformed(f"its zip directory is damaged: {error}") from error
    return {
        each.filename: Entry(
            name=each.filename,
            stored=each.compress_type == zipfile.ZIP_STORED and each.compress_size == each.file_size,
            size=each.file_size,
            header=each.header_offset,
        )
        for each in found
    }


def data_offset(part: Part, entry: Entry) -> int:
    """Offset of a member's data. Raises Malformed if its local header is missing."""
    part.seek(entry.header)
    header = part.read(30)
    if entry.header < 0 or len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise Malformed(f"{entry.name} is listed at byte {entry.header:,} but is not there")
    name, extra = struct.unpack("<HH", header[26:30])
    return entry.header + 30 + int(name) + int(extra)


MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001


def read_zipped(part: Part, members: dict[str, Entry], bounds: Bounds) -> tuple[str, Inert]:
    """The common prefix of the member names, and the pickle. Raises Malformed if there is no valid one."""
    names = [name for name in members if name == "data.pkl" or name.endswith("/data.pkl")]
    if not names:
        raise Malformed(f"it is a zip archive of {len(members)} members without data.pkl: not from torch.save")
    entry = members[min(names, key=len)]
    if not entry.stored:
        raise Malformed(f"its {entry.name} is compressed, which torch never does; not unpacked", kind="unread")
    if entry.size > bounds.longest:
        raise Malformed(f"its {entry.name} claims {entry.size:,} bytes (limit {bounds.longest:,})")
    part.seek(data_offset(part, entry))
    data = part.read(entry.size)
    if len(data) < entry.size:
        raise Malformed(f"it is truncated in {entry.name}", kind="truncated")
    return entry.name.removesuffix("data.pkl"), read_inert(io.BytesIO(data), bounds)


def looks_old(head: bytes) -> bool:
    """Whether this is the head of a legacy file: its first pickle is the magic number."""
    return MAGIC.to_bytes(10, "little") in head[:32]


def read_old(file: Bytes, bounds: Bounds) -> Inert:
    """The main pickle of a legacy file; stops right behind it. Raises Malformed if it is not a valid one."""
    magic, version = (read_inert(file, bounds).value for _ in range(2))
    if magic != MAGIC or version != VERSION:
        raise Malformed(f"it starts like an old torch file but is not version {VERSION}")
    read_inert(file, bounds)  # system info of the writer
    return read_inert(file, bounds)
