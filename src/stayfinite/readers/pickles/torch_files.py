"""The pickle in a torch.save file: a zip member since 1.6, before that the fourth of five. Nothing is unpacked."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.inert import Bounds, Bytes, Inert, read_inert

Read = Callable[[int, int], bytes]
"""``read(offset, length)`` returns bytes of the archive; fewer at its end."""

LARGEST_TABLE = 128 << 20


class Entry(NamedTuple):
    """One member of an archive."""

    name: str
    stored: bool
    """Whether it is uncompressed; torch never compresses."""

    size: int
    header: int
    """Offset of its local header."""


def read_directory(read: Read, size: int) -> dict[str, Entry]:
    """All members by name. Raises Malformed if the directory is invalid or missing, as in a truncated archive."""
    tail_at = max(0, size - 65_557)
    tail = read(tail_at, size - tail_at)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 22:
        raise Malformed(f"it is truncated: no zip directory at the end of its {size:,} bytes", kind="truncated")
    count, length, start = struct.unpack("<10xHII2x", tail[at : at + 22])
    if count == 0xFFFF or 0xFFFFFFFF in (length, start):
        count, length, start = _of_zip64(read, tail_at + at)
    if start + length > size:
        raise Malformed(f"its zip directory would end at byte {start + length:,} of {size:,}", kind="truncated")
    if length > LARGEST_TABLE:
        raise Malformed(f"its zip directory takes {length:,} bytes (limit {LARGEST_TABLE:,})")
    return _entries(read(start, length), count)


def data_offset(read: Read, entry: Entry) -> int:
    """Offset of a member's data. Raises Malformed if its local header is missing."""
    header = read(entry.header, 30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise Malformed(f"{entry.name} is listed at byte {entry.header:,} but is not there")
    name, extra = struct.unpack("<HH", header[26:30])
    return entry.header + 30 + int(name) + int(extra)


def _of_zip64(read: Read, end_at: int) -> tuple[int, int, int]:
    locator = read(max(0, end_at - 20), 20)
    if len(locator) < 20 or locator[:4] != b"PK\x06\x07":
        raise Malformed("its zip64 directory is incomplete")
    (record_at,) = struct.unpack("<8xQ4x", locator)
    record = read(record_at, 56)
    if len(record) < 56 or record[:4] != b"PK\x06\x06":
        raise Malformed("its zip64 directory is not where it should be")
    count, length, start = struct.unpack("<32xQQQ", record)
    return count, length, start


def _entries(table: bytes, count: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    at = 0
    while at + 46 <= len(table) and table[at : at + 4] == b"PK\x01\x02":
        method, packed, size, name, extra, comment, header = struct.unpack("<10xH8xIIHHH8xI", table[at : at + 46])
        start = at + 46 + name
        packed, size, header = _wide(table[start : start + extra], packed, size, header)
        text = table[at + 46 : start].decode("utf-8", "replace")
        entries[text] = Entry(name=text, stored=method == 0 and packed == size, size=size, header=header)
        at = start + extra + comment
    if len(entries) != count:
        raise Malformed(f"its zip directory lists {len(entries):,} members, expected {count:,}")
    return entries


def _wide(extra: bytes, packed: int, size: int, header: int) -> tuple[int, int, int]:
    """Sizes and offset of a member, from the zip64 field where they exceed 32 bits."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 1:
            wide = [int.from_bytes(extra[i : i + 8], "little") for i in range(at + 4, at + 4 + length - 7, 8)]
            values = [wide.pop(0) if each == 0xFFFFFFFF and wide else each for each in (size, packed, header)]
            return values[1], values[0], values[2]
        at += 4 + length
    return packed, size, header


MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001


def part_reader(file: BinaryIO, start: int, size: int) -> Read:
    """Return a function that reads parts of an archive embedded in a file."""

    def part(offset: int, length: int) -> bytes:
        if offset < 0 or offset >= size:
            return b""
        file.seek(start + offset)
        return file.read(min(length, size - offset))

    return part


def read_zipped(part: Read, members: dict[str, Entry], bounds: Bounds) -> tuple[str, Inert]:
    """The common prefix of the member names, and the pickle. Raises Malformed if there is no valid one."""
    names = [name for name in members if name == "data.pkl" or name.endswith("/data.pkl")]
    if not names:
        raise Malformed(f"it is a zip archive of {len(members)} members without data.pkl: not from torch.save")
    entry = members[min(names, key=len)]
    if not entry.stored:
        raise Malformed(f"its {entry.name} is compressed, which torch never does; not unpacked", kind="unread")
    if entry.size > bounds.longest:
        raise Malformed(f"its {entry.name} claims {entry.size:,} bytes (limit {bounds.longest:,})")
    data = part(data_offset(part, entry), entry.size)
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
