"""TensorFlow's record files: length, checksum of it, data, checksum of them; read in chunks, damage survived."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = struct.Struct("<QI")
HEADER_BYTES = _HEADER.size
LONGEST_RECORD = 64 << 20
"""Images and histograms are passed over; a length beyond this is damage."""
MOST_SEARCH = 1 << 20
"""Bytes that are searched for the next record behind damage, in all."""


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C, masked as the format demands."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def is_header(data: bytes) -> bool:
    """Whether a record begins here."""
    if len(data) < HEADER_BYTES:
        return False
    length, crc = _HEADER.unpack_from(data)
    return bool(length <= LONGEST_RECORD and crc == masked_crc(data[:8]))


class RecordSplitter:
    """Takes bytes, gives whole records."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        self._lost = False
        self.damaged = 0
        """Places at which bytes had to be passed over."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The records that are complete now and whose checksum is right, small ones; large ones are not checked."""
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
        """The next place at which a header stands; -1 where there is none so far."""
        last = len(self._data) - HEADER_BYTES
        while place <= last and self._searched < MOST_SEARCH:
            self._searched += 1
            # A length below 2^26 has zeros in its upper bytes; most places are told apart without a checksum.
            if self._data[place + 4 : place + 8] == b"\0\0\0\0" and is_header(
                bytes(self._data[place : place + HEADER_BYTES])
            ):
                return place
            place += 1
        return -1
