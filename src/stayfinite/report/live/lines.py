"""Runs as plain lines for pipes and files: events, changes of health, and figures now and then."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stayfinite.core.run_status import Happening, HealthWord, RunStatus
from stayfinite.core.schema_names import tagged
from stayfinite.report.live.spells import spells
from stayfinite.report.live.words import one_line, spell_line

CLOCKS = frozenset({"quiet_seconds", "eta_seconds", "done"})
"""Fields that change with time alone."""

PAUSE = 10.0
"""Seconds between two progress lines."""


class PlainLines:
    """Writes what is new about runs."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._told: dict[str, tuple[HealthWord, str, int | None, float]] = {}
        self._newest = Newest()

    def show(self, statuses: Sequence[RunStatus]) -> None:
        for status in statuses:
            name = status.name if len(statuses) > 1 else ""
            first = status.path not in self._told
            for spell in spells(self._newest.of(status)):
                self._write(spell_line(spell, name))
            word, state, step, when = self._told.get(status.path, (status.health.word, "", None, 0.0))
            turned = first or word != status.health.word or state != status.state
            moved = step != status.step and time.monotonic() - when >= PAUSE
            if turned or moved:
                self._write(one_line(status))
                when = time.monotonic()
                self._told[status.path] = (status.health.word, status.state, status.step, when)


class JsonLines:
    """Writes a run's status as a line of JSON when it changes; each event appears once."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._told: dict[str, dict[str, Any]] = {}
        self._newest = Newest()

    def show(self, statuses: Sequence[RunStatus]) -> None:
        for status in statuses:
            record = status.to_json()
            # Ignore changes of the clock alone.
            stable = {name: value for name, value in record.items() if name not in CLOCKS}
            if self._told.get(status.path) == stable:
                continue
            self._told[status.path] = stable
            record["happenings"] = [happening.to_json() for happening in self._newest.of(status)]
            self._write(strict_json(tagged("status", record)))


def strict_json(record: Mapping[str, Any], indent: int | None = None) -> str:
    """JSON without NaN or lone surrogates."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=indent)
    return text.encode("utf-8", "replace").decode()


class Newest:
    """Remembers the last event shown for each run."""

    def __init__(self) -> None:
        self._last: dict[str, Happening | None] = {}

    def of(self, status: RunStatus) -> Sequence[Happening]:
        """Events since the last call; all of them after the run restarts."""
        happenings = list(status.happenings)
        last = self._last.get(status.path)
        self._last[status.path] = happenings[-1] if happenings else None
        for place in range(len(happenings) - 1, -1, -1):
            if happenings[place] is last:
                return happenings[place + 1 :]
        return happenings
