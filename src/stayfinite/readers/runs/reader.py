"""A run directory, read piece by piece while it grows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stayfinite.readers.runs.events import Events
from stayfinite.readers.runs.growing import GrowingFile
from stayfinite.readers.runs.incidents import read_incidents, read_object
from stayfinite.readers.runs.layers import LayerTable, read_layers
from stayfinite.readers.runs.steps import Steps

STEPS, EVENTS, RUN, LAYERS, INCIDENTS, LEDGER = (
    "steps.jsonl", "events.jsonl", "run.json", "layers.npz", "incidents", "ledger.json",
)  # fmt: skip


def is_run_directory(path: Path) -> bool:
    """Whether a guard has written here."""
    return path.is_dir() and any((path / name).is_file() for name in (STEPS, EVENTS, RUN))


class RunReader:
    """Holds what was read of a run directory; :meth:`refresh` reads what is new.

    A file that was replaced, cut or deleted is read from its beginning. Nothing that is in the directory raises: what
    cannot be read is left out.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.steps = Steps()
        self.events = Events()
        self.launches: list[dict[str, Any]] = []
        """run.json, a record a launch."""
        self.layers: LayerTable | None = None
        self.incidents: list[dict[str, Any]] = []
        self.ledger: dict[str, Any] = {}
        self._steps_file = GrowingFile(directory / STEPS)
        self._events_file = GrowingFile(directory / EVENTS)
        self._stamps: dict[str, tuple[int, ...]] = {}

    def refresh(self) -> bool:
        """Read what is new; whether there was anything."""
        changed = False
        if self._steps_file.begun_anew():
            self.steps, changed = Steps(), True
        for record in self._steps_file.new_objects():
            self.steps.add(record)
            changed = True
        if self._events_file.begun_anew():
            self.events, changed = Events(), True
        for record in self._events_file.new_objects():
            self.events.add(record)
            changed = True
        if self._touched(RUN, [self.directory / RUN]):
            launches = (read_object(self.directory / RUN) or {}).get("launches")
            self.launches = [each for each in launches if isinstance(each, dict)] if isinstance(launches, list) else []
            changed = True
        if self._touched(LAYERS, [self.directory / LAYERS]):
            self.layers = read_layers(self.directory / LAYERS)
            changed = True
        if self._touched(LEDGER, [self.directory / LEDGER]):
            self.ledger = read_object(self.directory / LEDGER) or {}
            changed = True
        place = self.directory / INCIDENTS
        if self._touched(INCIDENTS, [place, *place.glob("*/incident.json"), *place.glob("*/autopsy.json")]):
            self.incidents = read_incidents(place)
            changed = True
        return changed

    def _touched(self, name: str, paths: Iterable[Path]) -> bool:
        """Whether any of these is another one than at the last reading, or was written since."""
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
