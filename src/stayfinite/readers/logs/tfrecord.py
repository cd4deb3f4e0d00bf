"""TFRecord files: length, its checksum, data, data checksum. Read in chunks; damage is skipped."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = struct.Struct("<QI")
HEADER_BYTES = _HEADER.size
LONGEST_RECORD = 64 << 20  # images and histograms are skipped; a longer length means damage
MOST_SEARCH = 1 << 20  # total bytes searched for the next record after damage


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C, masked as TFRecord requires."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def is_header(data: bytes) -> bool:
    """Whether a record starts here."""
    if len(data) < HEADER_BYTES:
        return False
    length, crc = _HEADER.unpack_from(data)
    return bool(length <= LONGEST_RECORD and crc == masked_crc(data[:8]))


class RecordSplitter:
    """Splits bytes into whole records."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        self._lost = False
        self.damaged = 0
        """Number of damaged places skipped."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield complete records. Small ones are checked against their checksum; large ones are not."""
        self._data += chunk
        data, place = self._data, 0
        while len(data) - place >= HEADER_BYTES:
            if not is_header(bytes(data[place : place + HEADER_BYTES])):
                self.damaged += not self._lost
                self._lost = True
                found = self._search(place + 1)
                if found < 0:
                    place = len(data) - HEADER_BYTES + 1 if self._searched < MOST_SEARCH else len(data)
                    break
                place, self._lost = found, False
                continue
            length = int.from_bytes(data[place : place + 8], "little")
            end = place + HEADER_BYTES + length + 4
            if end > len(data):
                break
            record = bytes(data[place + HEADER_BYTES : end - 4])
            if length <= 4096 and masked_crc(record) != int.from_bytes(data[end - 4 : end], "little"):
                self.damaged += 1
            else:
                yield record
            place = end
        del data[:place]

    def _search(self, place: int) -> int:
        """Return the offset of the next header, or -1."""
        last = len(self._data) - HEADER_BYTES
        while place <= last and self._searched < MOST_SEARCH:
            self._searched += 1
            # A length below 2^26 has zero upper bytes, which rules out most offsets without a checksum.
            if self._data[place + 4 : place + 8] == b"\0\0\0\0" and is_header(
                bytes(self._data[place : place + HEADER_BYTES])
            ):
                return place
            place += 1
        return -1
