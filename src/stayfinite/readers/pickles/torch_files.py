"""The pickle in a torch.save file: a zip member since 1.6, before that the fourth of five pickles."""

from __future__ import annotations

import io
from typing import BinaryIO

from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.inert import Bounds, Bytes, Inert, read_inert
from stayfinite.readers.pickles.zip_directory import Entry, Read, data_offset

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
