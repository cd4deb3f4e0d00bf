"""The subset of the protocol buffer wire format that TensorBoard event files use."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.readers.malformed import Malformed

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield ``(number, wire type, integer, bytes)`` per field; varints fill the integer, all others the bytes."""
    place, end = 0, len(data)
    while place < end:
        key, place = varint(data, place)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise Malformed("field 0")
        if wire == VARINT:
            value, place = varint(data, place)
            yield number, wire, value, b""
            continue
        if wire == BYTES:
            size, place = varint(data, place)
        elif wire in {FIXED64, FIXED32}:
            size = 8 if wire == FIXED64 else 4
        else:
            raise Malformed(f"wire type {wire}")
        if size > end - place:
            raise Malformed("a field reaches beyond its message")
        yield number, wire, 0, data[place : place + size]
        place += size


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Decode a varint; return its value and the offset after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            raise Malformed("an integer is truncated")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place
    raise Malformed("an integer is too long")


def signed(value: int) -> int:
    """Convert an unsigned varint to int64."""
    return value - (1 << 64) if value >> 63 else value
