"""Read layers.npz without numpy: values by parameter, step and field."""

from __future__ import annotations

import ast
import struct
import sys
import zipfile
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex

FIELDS = ("norm", "zero_share", "update_ratio", "nonfinite", "abs_max")
LARGEST = 512 << 20  # bytes of one table; larger ones were not written by a guard

MOST_PARTS = 20  # launches to show, newest first

_PART = lazy_regex(r"layers-(\d{1,9})\.npz")
_NAMES = lazy_regex(r"<U(\d{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable:
    """Statistics of every parameter over time."""

    names: tuple[str, ...]
    steps: tuple[int, ...]
    tables: Mapping[str, array[float]]
    """Per field, the values of all parameters at the first look, then at the second, and so on."""

    def column(self, field: str, place: int) -> array[float]:
        """One field of one parameter over time; empty if missing."""
        table = self.tables.get(field)
        return array("f") if table is None else table[place :: len(self.names)]


def layer_files(directory: Path) -> list[Path]:
    """The layer files of a run, oldest first: one per launch, the newest with the plain name."""
    older = [(int(found[1]), path) for path in directory.glob("layers-*.npz") if (found := _PART.fullmatch(path.name))]
    return [path for _, path in sorted(older)[-MOST_PARTS:]] + [directory / "layers.npz"]


def all_layers(paths: Sequence[Path]) -> LayerTable | None:
    """The tables of all launches merged; None if there is none."""
    parts = [table for path in paths if (table := read_layers(path)) is not None]
    if not parts:
        return None
    # Use the latest set of parameters; a repeated step counts the second time.
    parts = [part for part in parts if part.names == parts[-1].names and part.tables.keys() == parts[-1].tables.keys()]
    joined = parts[-1]
    for part in reversed(parts[:-1]):
        looks = sum(step < joined.steps[0] for step in part.steps)
        tables = {name: table[: looks * len(part.names)] + joined.tables[name] for name, table in part.tables.items()}
        joined = LayerTable(names=part.names, steps=part.steps[:looks] + joined.steps, tables=tables)
    return joined


def read_layers(path: Path) -> LayerTable | None:
    """One table; None if missing or unreadable."""
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
        return None  # truncated or foreign
    return LayerTable(names=names, steps=steps, tables=tables) if names and steps and tables else None


def _array(archive: zipfile.ZipFile, name: str) -> tuple[str, tuple[int, ...], bytes]:
    if archive.getinfo(name).file_size > LARGEST:
        raise ValueError(f"{name} is too large")
    content = archive.read(name)
    if content[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{name} is not an array of version 1.0")
    (length,) = struct.unpack("<H", content[8:10])
    header: Any = ast.literal_eval(content[10 : 10 + length].decode("latin-1").strip())
    shape = tuple(int(size) for size in header["shape"])
    if header["fortran_order"]:
        raise ValueError(f"{name} is stored in Fortran order")
    return str(header["descr"]), shape, content[10 + length :]


def _names(kind: str, shape: tuple[int, ...], content: bytes) -> tuple[str, ...]:
    width = _NAMES.fullmatch(kind)
    if width is None or len(shape) != 1:
        raise ValueError("names are not text")
    size = 4 * int(width[1])
    if len(content) < size * shape[0]:
        raise ValueError("names are truncated")
    pieces = (content[place * size : (place + 1) * size] for place in range(shape[0]))
    return tuple(piece.decode("utf-32-le", "replace").rstrip("\0") for piece in pieces)


def _floats(content: bytes) -> array[float]:
    numbers = array("f")
    numbers.frombytes(content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
