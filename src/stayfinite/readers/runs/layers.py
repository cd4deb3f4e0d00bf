"""layers.npz read back without numpy: which parameter, which step, which number."""

from __future__ import annotations

import ast
import re
import struct
import sys
import zipfile
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIELDS = ("norm", "zero_share", "update_ratio", "nonfinite", "abs_max")
LARGEST = 512 << 20
"""Bytes of one table; what is larger was not written by a guard."""

_NAMES = re.compile(r"<U(\d{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable:
    """The closer looks at every parameter, over time."""

    names: tuple[str, ...]
    steps: tuple[int, ...]
    tables: Mapping[str, array[float]]
    """For each field the numbers of all parameters at the first look, then at the second, and so on."""

    def column(self, field: str, place: int) -> array[float]:
        """One field of one parameter over time; empty where the file does not hold it."""
        table = self.tables.get(field)
        return array("f") if table is None else table[place :: len(self.names)]


def read_layers(path: Path) -> LayerTable | None:
    """The table; None where there is none, or it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = _names(*_array(archive, "names.npy"))
            _, _, content = _array(archive, "steps.npy")
            steps = struct.unpack(f"<{len(content) // 8}q", content)
            tables = {}
            for field in FIELDS:
                if f"{field}.npy" in archive.namelist():
                    kind, shape, content = _array(archive, f"{field}.npy")
                    if kind == "<f4" and shape == (len(steps), len(names)):
                        tables[field] = _floats(content)
    except (OSError, ValueError, KeyError, SyntaxError, struct.error, zipfile.BadZipFile, EOFError, RuntimeError):
        return None  # half a file, or somebody else's
    return LayerTable(names=names, steps=steps, tables=tables) if names and steps and tables else None


def _array(archive: zipfile.ZipFile, name: str) -> tuple[str, tuple[int, ...], bytes]:
    if archive.getinfo(name).file_size > LARGEST:
        raise ValueError(f"{name} is too large")
    content = archive.read(name)
    if content[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{name} is no array of version 1.0")
    (length,) = struct.unpack("<H", content[8:10])
    header: Any = ast.literal_eval(content[10 : 10 + length].decode("latin-1").strip())
    shape = tuple(int(size) for size in header["shape"])
    if header["fortran_order"]:
        raise ValueError(f"{name} is stored by columns")
    return str(header["descr"]), shape, content[10 + length :]


def _names(kind: str, shape: tuple[int, ...], content: bytes) -> tuple[str, ...]:
    width = _NAMES.fullmatch(kind)
    if width is None or len(shape) != 1:
        raise ValueError("names are no texts")
    size = 4 * int(width[1])
    if len(content) < size * shape[0]:
        raise ValueError("names are cut off")
    pieces = (content[place * size : (place + 1) * size] for place in range(shape[0]))
    return tuple(piece.decode("utf-32-le", "replace").rstrip("\0") for piece in pieces)


def _floats(content: bytes) -> array[float]:
    numbers = array("f")
    numbers.frombytes(content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
