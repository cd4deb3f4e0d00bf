"""Read a run directory incrementally while it grows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.runs.directory import EVENTS, RUN, STEPS, News, RunDirectory
from stayfinite.readers.runs.events import Events
from stayfinite.readers.runs.layers import LayerTable, all_layers, layer_files
from stayfinite.readers.runs.steps import Steps

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


class RunReader:
    """The content of a run directory; :meth:`refresh` reads what is new.

    A replaced or truncated file is read from the start; the content of a deleted one is kept until it reappears.
    Nothing in the directory raises: unreadable parts are left out.
    """

    def __init__(self, directory: Path) -> None:
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
        self._growing = RunDirectory(directory)
        self._seen_launch = self._growing.launch
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
        news = self._growing.news()
        if news.anew:
            self.steps, self.events = Steps(), Events()
        for record in news.steps:
            self.steps.add(record)
        for record in news.events:
            if not record.get("rank"):  # other ranks write their own files
                self.events.add(record)
        news.beside = self._look_beside()
        return news

    @property
    def launch(self) -> dict[str, Any]:
        """run.json, as last read."""
        return self._growing.launch

    @property
    def total_steps(self) -> int | None:
        return self._growing.total_steps

    @property
    def ends(self) -> float | None:
        """When a time-limited run ends, if run.json says so."""
        return self._growing.ends

    @property
    def minutes(self) -> float | None:
        return self._growing.minutes

    def _look_beside(self) -> bool:
        """Read the files that are written as a whole, if they changed."""
        changed = False
        # Compare with what was read: the file may have been replaced since.
        if self.launch is not self._seen_launch:
            self._seen_launch = self.launch
            launches = self.launch.get("launches")
            self.launches = [each for each in launches if isinstance(each, dict)] if isinstance(launches, list) else []
            changed = True
        if self._touched(LAYERS, layers := layer_files(self.directory)):
            self.layers = all_layers(layers)
            changed = True
        if self._touched(EVALUATIONS, [self.directory / EVALUATIONS]):
            recorded = (read_object(self.directory / EVALUATIONS) or {}).get("evaluations")
            self.evaluations = (
                [each for each in recorded if isinstance(each, dict)] if isinstance(recorded, list) else []
            )
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
