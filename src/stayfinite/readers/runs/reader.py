"""Read a run directory incrementally while it grows; layers.npz without numpy."""

from __future__ import annotations

import ast
import json
import struct
import sys
import zipfile
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.runs.directory import EVENTS, RUN, STEPS, News, RunDirectory
from stayfinite.readers.runs.events import Events, Steps

FIELDS = ("norm", "zero_share", "update_ratio", "nonfinite", "abs_max")
LARGEST_TABLE = 512 << 20  # bytes of one table; larger ones were not written by a guard

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
    if archive.getinfo(name).file_size > LARGEST_TABLE:
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


MOST = 16
LARGEST = 8 << 20  # bytes; larger files are not ours

_NUMBERED = lazy_regex(r"\d{4,12}")


def read_incidents(directory: Path) -> list[dict[str, Any]]:
    """Each incident with its name, incident.json and autopsy.json, oldest first."""
    try:
        found = [path for path in directory.iterdir() if _NUMBERED.fullmatch(path.name) and path.is_dir()]
    except OSError:
        return []
    incidents = []
    for path in sorted(found, key=lambda path: int(path.name))[:MOST]:
        record = read_object(path / "incident.json")
        if record is not None:
            incidents.append({"name": path.name, "record": record, "autopsy": read_object(path / "autopsy.json")})
    return incidents


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is none."""
    try:
        if path.stat().st_size > LARGEST:
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


LAYERS, INCIDENTS, LEDGER, EVALUATIONS = "layers.npz", "incidents", "ledger.json", "evaluations.json"


def is_run_directory(path: Path) -> bool:
    """Whether a guard has written here."""
    return path.is_dir() and any((path / name).is_file() for name in (STEPS, EVENTS, RUN))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


class RunReader(RunDirectory):
    """The content of a run directory; :meth:`refresh` reads what is new.

    A replaced or truncated file is read from the start; the content of a deleted one is kept until it reappears.
    Nothing in the directory raises: unreadable parts are left out.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.directory = directory
        self.steps = Steps()
        self.events = Events()
        self.launches: list[dict[str, Any]] = []
        """Records of run.json, one per launch."""
        self.layers: LayerTable | None = None
        self.incidents: list[dict[str, Any]] = []
        self.ledger: dict[str, Any] = {}
        self.evaluations: list[dict[str, Any]] = []
        """Evaluations of a recipe, each with its step and scores by name."""
        self._seen_launch = self.launch
        self._stamps: dict[str, tuple[int, ...]] = {}

    def refresh(self) -> bool:
        """Read all that is new; return whether there was anything."""
        changed = False
        while True:
            news = self.news()
            changed = changed or news.any
            if not news.more:
                return changed

    def news(self) -> News:
        """Read a bounded piece of each file and return what is new."""
        news = super().news()
        if news.anew:
            self.steps, self.events = Steps(), Events()
        for record in news.steps:
            self.steps.add(record)
        for record in news.events:
            if not record.get("rank"):  # other ranks write their own files
                self.events.add(record)
        news.beside = self._look_beside()
        return news

    def _look_beside(self) -> bool:
        """Read the files that are written as a whole, if they changed."""
        changed = False
        # Compare with what was read: the file may have been replaced since.
        if self.launch is not self._seen_launch:
            self._seen_launch = self.launch
            self.launches = _objects(self.launch.get("launches"))
            changed = True
        if self._touched(LAYERS, layers := layer_files(self.path)):
            self.layers = all_layers(layers)
            changed = True
        if self._touched(EVALUATIONS, [self.path / EVALUATIONS]):
            self.evaluations = _objects((read_object(self.path / EVALUATIONS) or {}).get("evaluations"))
            changed = True
        if self._touched(LEDGER, [self.path / LEDGER]):
            self.ledger = read_object(self.path / LEDGER) or {}
            changed = True
        place = self.path / INCIDENTS
        if self._touched(INCIDENTS, [place, *place.glob("*/incident.json"), *place.glob("*/autopsy.json")]):
            self.incidents = read_incidents(place)
            changed = True
        return changed

    def _touched(self, name: str, paths: Iterable[Path]) -> bool:
        """Whether any of these files was replaced or written since the last reading."""
        stamp: list[int] = []
        for path in paths:
            try:
                status = path.stat()
            except OSError:
                continue
            stamp += (status.st_ino, status.st_mtime_ns, status.st_size)
        changed = self._stamps.get(name, ()) != tuple(stamp)
        self._stamps[name] = tuple(stamp)
        return changed
