"""TensorBoard event files, without TensorFlow or TensorBoard.

``events.out.tfevents.*`` holds TFRecords (length, its checksum, data, data checksum) with one ``Event`` protobuf
each: wall time 1, step 2, file version 3, summary 5. Summary values: tag 1, simple value 2, tensor 8. The record
number serves as the line number. Damage is skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from stayfinite.core.log_names import column_of, plain
from stayfinite.core.series import RunSeries
from stayfinite.readers.logs.records import Records
from stayfinite.readers.malformed import Malformed

_RECORD_HEADER = struct.Struct("<QI")
HEADER_BYTES = _RECORD_HEADER.size
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
    length, crc = _RECORD_HEADER.unpack_from(data)
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


_FLOAT, _DOUBLE, _INT32, _HALF, _INT64 = 1, 2, 3, 19, 9
_LAYOUTS = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _HALF: "<e", _INT64: "<q"}
_MOST_NAMES = 2_000


class TensorBoard:
    """Reads bytes into one series; scalars of one step form one point."""

    def __init__(self, source: str) -> None:
        self._splitter = RecordSplitter()
        self._records = Records(source, "tensorboard")
        self._count = 0
        self._step: int | None = None
        self._values: dict[str, float] = {}
        self._line = 0

    def feed(self, chunk: bytes) -> None:
        for record in self._splitter.feed(chunk):
            self._count += 1
            try:
                self._event(record)
            except Malformed:
                self._splitter.damaged += 1

    def close(self) -> None:
        self._emit()
        if self._splitter.damaged:
            text = f"skipped {self._splitter.damaged} damaged records of the event file"
            self._records.messages.add(text, self._count + 1)

    @property
    def series(self) -> list[RunSeries]:
        found = self._records.close()
        found[0].lines = self._count
        return found

    def _event(self, record: bytes) -> None:
        step, summaries = 0, []
        for number, wire, value, data in fields(record):
            if number == 2 and wire == VARINT:
                step = signed(value)
            elif number == 5 and wire == BYTES:
                summaries.append(data)
        for summary in summaries:
            for number, wire, _, data in fields(summary):
                if number == 1 and wire == BYTES:
                    self._value(step, data)

    def _value(self, step: int, data: bytes) -> None:
        tag, scalar, text = "", None, ""
        for number, wire, _, content in fields(data):
            if number == 1 and wire == BYTES:
                tag = content.decode("utf-8", "replace")
            elif number == 2 and wire == FIXED32:
                scalar = struct.unpack("<f", content)[0]
            elif number == 8 and wire == BYTES:
                scalar, text = _tensor(content)
        if text:
            self._records.messages.add(f"{tag}: {text}" if tag else text, self._count)
        if scalar is None or not tag or len(self._records.series.metrics) > _MOST_NAMES:
            return
        column = column_of(plain(tag))
        if step != self._step or (column and tag in self._values):
            self._emit()
            self._step, self._line = step, self._count
        self._values[tag] = scalar

    def _emit(self) -> None:
        if self._values:
            self._records.add({"step": self._step, **self._values}, self._line)
            self._values = {}


def _tensor(data: bytes) -> tuple[float | None, str]:
    """The first number of a tensor, or its text."""
    kind, content, text = 0, b"", ""
    values: list[float] = []
    for number, wire, value, piece in fields(data):
        if number == 1 and wire == VARINT:
            kind = value
        elif number == 4 and wire == BYTES:
            content = piece
        elif number == 5 and wire in {BYTES, FIXED32} and len(piece) >= 4:
            values.append(struct.unpack_from("<f", piece)[0])
        elif number == 6 and wire in {BYTES, FIXED64} and len(piece) >= 8:
            values.append(struct.unpack_from("<d", piece)[0])
        elif number in {7, 10}:
            values.append(float(signed(varint(piece, 0)[0] if wire == BYTES and piece else value)))
        elif number == 8 and wire == BYTES:
            text = text or piece.decode("utf-8", "replace")
    if text:
        return None, text
    layout = _LAYOUTS.get(kind)
    if content and layout and len(content) >= struct.calcsize(layout):
        values.append(float(struct.unpack_from(layout, content)[0]))
    return (values[0] if values else None), ""
