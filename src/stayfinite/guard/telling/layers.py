"""layers.npz: the per-parameter samples over time.

``names`` [P], ``steps`` [S], and one float32 table [S, P] for each of the sample's fields; NaN if a parameter had no
gradient. Readable with ``numpy.load``; written without numpy, which is not a dependency. Beyond ``MOST`` samples every
second one is dropped, so memory and file stay small.
"""

import io
import math
import zipfile
from array import array
from collections.abc import Sequence

from stayfinite.measure.sample import FIELDS

MOST = 1024
"""Most samples to keep."""

VERSION = 1


class Layers:
    """Collects samples and writes them as a file."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._indices: Sequence[int] = ()
        self._whole = False
        """Whether these are all parameters, in order."""
        self._rows: list[tuple[int, array[float]]] = []
        self._stride = 1
        self._seen = 0
        self._written = 0

    def add(self, step: int, names: tuple[str, ...], indices: Sequence[int], table: Sequence[float]) -> None:
        """Add a sample; ``table`` has its rows, flattened."""
        if names != self._names:
            # A new set of parameters has other columns; the file shows the latest set.
            self._names, self._rows, self._stride, self._seen, self._written = names, [], 1, 0, 0
            self._indices, self._whole = (), False
        self._seen += 1
        if (self._seen - 1) % self._stride:
            return
        width = len(FIELDS)
        if indices is not self._indices:
            self._indices, self._whole = indices, list(indices) == list(range(len(names)))
        if self._whole:
            row = array("f", table)
        else:
            row = array("f", [math.nan]) * (len(names) * width)
            for place, index in enumerate(indices):
                row[index * width : (index + 1) * width] = array("f", table[place * width : (place + 1) * width])
        self._rows.append((step, row))
        if len(self._rows) > MOST:
            self._rows = self._rows[::2]
            self._stride *= 2

    @property
    def unwritten(self) -> bool:
        """Whether the file lacks some samples."""
        return len(self._rows) != self._written

    @property
    def due(self) -> bool:
        """Whether to write the file again: each time it has grown by a tenth."""
        return self.unwritten and abs(len(self._rows) - self._written) * 10 >= self._written

    def to_bytes(self) -> bytes:
        width, count, looks = len(FIELDS), len(self._names), len(self._rows)
        longest = max((len(name) for name in self._names), default=1) or 1
        names = b"".join(name.encode("utf-32-le", "replace").ljust(4 * longest, b"\0") for name in self._names)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("version.npy", _npy("<i8", (), array("q", [VERSION]).tobytes()))
            archive.writestr("names.npy", _npy(f"<U{longest}", (count,), names))
            archive.writestr("steps.npy", _npy("<i8", (looks,), array("q", [step for step, _ in self._rows]).tobytes()))
            for place, field in enumerate(FIELDS):
                table = b"".join(row[place::width].tobytes() for _, row in self._rows)
                archive.writestr(f"{field}.npy", _npy("<f4", (looks, count), table))
        self._written = looks
        return buffer.getvalue()


def _npy(kind: str, shape: tuple[int, ...], content: bytes) -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape!r}, }}"
    # Format 1.0: magic, version, header length; the content starts at a multiple of 64.
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode("latin-1") + content
