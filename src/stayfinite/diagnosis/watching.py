"""Which runs a path stands for, and following each of them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stayfinite.core.run_status import RunStatus
from stayfinite.core.settings import Settings
from stayfinite.diagnosis.autopsies import record_in
from stayfinite.diagnosis.gathering import gather, named_like_a_log
from stayfinite.diagnosis.judging import SHARE
from stayfinite.diagnosis.live_log import LiveLog
from stayfinite.diagnosis.live_run import LiveRun
from stayfinite.readers.runs.directory import RUN, STEPS
from stayfinite.readers.runs.reader import RunReader, is_run_directory

Followed = LiveRun | LiveLog

FIND_AGAIN = 5.0
"""Seconds between two looks for runs that have begun."""

LONGEST_RECORD = 1 << 20
"""Bytes of a first step or of run.json that are read to see whether a guard wrote them."""

MOST_RUNS = 2_000
"""Runs that a directory of runs stands for; the newest ones."""


MANY = 50
"""Above so many runs, those in which nothing happens are looked at less and less often."""
LONGEST_REST = 120.0
"""Seconds between two looks at a run in which nothing happens, among many."""
FIND_SHARE = 0.01
"""Of the time that looking for runs that have begun may take."""
JUDGED_SHARE = 0.02
"""Of the time that judging may take, among many runs, all of them together."""

MOST_FOLDERS = 200
"""Directories in one that holds neither a run nor a log, which are looked into for runs."""


def runs_under(path: Path) -> list[Path]:
    """The path itself; for a directory that is no run but holds some, each of them; for a file of a run, the run.

    A project's directory, with no log of its own, stands for the runs in its `runs` and `outputs`.
    """
    if (around := run_around(path)) is not None:
        return [around]
    if not path.is_dir() or is_run_directory(path):
        return [path]
    entries = _entries(path)
    inside = [each for each in entries if is_run_directory(each)]
    if not inside and not any(named_like_a_log(each) for each in entries):
        folders = [each for each in entries if not each.name.startswith(".") and each.is_dir()]
        inside = [each for folder in folders[:MOST_FOLDERS] for each in _entries(folder) if is_run_directory(each)]
    return sorted(sorted(inside, key=_changed)[-MOST_RUNS:]) or [path]


def newest_log(directory: Path) -> Path | None:
    """The log that a directory stands for. One in a guarded run's directory is the guard's, and no log by itself."""
    return max(gather(directory).logs, key=_changed, default=None)


def run_around(path: Path) -> Path | None:
    """The directory of the guarded run that a file lies in: its own files, and a log that somebody put beside them.

    A log tells of steps that the guard refused as if they had been taken; what became of them is in the directory.
    """
    if path.is_dir():
        return None
    # run.json is there before the first step is taken.
    wrote = "decision" in _first_record(path.parent / STEPS) or "launches" in _first_record(path.parent / RUN)
    return path.parent if wrote else None


def _first_record(path: Path) -> dict[str, Any]:
    """The first line of a file, or all of one that is a single record; empty where that is none."""
    try:
        with path.open("rb") as file:
            return record_in(file.read(LONGEST_RECORD) if path.name == RUN else file.readline(LONGEST_RECORD))
    except OSError:
        return {}


def follow(
    path: Path, name: str, *, total_steps: int | None = None, settings: Settings | None = None, drawn: bool = False
) -> Followed:
    """Follow what the path stands for: a guarded run's directory, a log, or a directory with a log in it.

    ``drawn``: all of a run directory is read, layers and incidents too, for whoever draws it.
    """
    if path.is_dir() and not is_run_directory(path):
        newest = newest_log(path)
        if newest is not None and not is_run_directory(newest.parent):
            return LiveLog(newest, name, total_steps=total_steps, settings=settings)
        path = path if newest is None else newest.parent
    elif path.is_file() or (not path.exists() and named_like_a_log(path)):
        return LiveLog(path, name, total_steps=total_steps, settings=settings)
    return LiveRun(path, name, total_steps=total_steps, source=RunReader(path) if drawn else None)


class WatchedRuns:
    """All runs that paths stand for, those among them that begin later."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        total_steps: int | None = None,
        settings: Settings | None = None,
        drawn: bool = False,
    ) -> None:
        self._paths = list(paths)
        self._total, self._settings, self._drawn = total_steps, settings, drawn
        self._runs: dict[Path, Followed] = {}
        self._looked = -math.inf
        self._finding = 0.0
        """Seconds that the last look for runs took."""
        self._rests: dict[Path, tuple[float, float]] = {}
        """Among many runs, when each was looked at, and for how long it is left alone since."""
        self._statuses: dict[Path, RunStatus] = {}
        """Of those that were not looked at since."""

    def look(self, *, at_once: bool = False) -> bool:
        """Read what is new in each of them; returns whether anything changed."""
        changed = self._find()
        now = time.monotonic()
        for path, run in self._runs.items():
            looked, rest = self._rests.get(path, (now, 0.0))
            if self._many and now < looked + rest and not at_once:
                continue
            news = run.look(at_once=at_once)
            self._statuses.pop(path, None)
            rest = 0.0 if news or run.behind else min(LONGEST_REST, max(1.0, 2 * (now - looked)))
            self._rests[path] = (now, rest)
            changed = news or changed
        return changed

    @property
    def _many(self) -> bool:
        return len(self._runs) > MANY

    @property
    def runs(self) -> list[Followed]:
        """One after the other, as they were given."""
        return list(self._runs.values())

    @property
    def expecting(self) -> bool:
        """Whether more runs may begin: a directory of runs was given."""
        return any(path.is_dir() and not is_run_directory(path) for path in self._paths)

    @property
    def behind(self) -> bool:
        """Whether more is waiting to be read at once."""
        return any(run.behind for run in self._runs.values())

    @property
    def turning(self) -> bool:
        """Whether the numbers of one of a few logs may be turning bad, so that it is worth looking again soon."""
        return not self._many and any(isinstance(run, LiveLog) and run.turning for run in self._runs.values())

    def statuses(self) -> list[RunStatus]:
        """How each of them stands now."""
        if not self._many:
            return [run.status() for run in self._runs.values()]
        for path, run in self._runs.items():
            if path not in self._statuses:
                self._statuses[path] = run.status()
        return [self._statuses[path] for path in self._runs]

    def _find(self) -> bool:
        # A log that a guarded run has begun around is not judged alone for a moment longer.
        outrun = any(isinstance(run, LiveLog) and run_around(path) is not None for path, run in self._runs.items())
        if time.monotonic() - self._looked < max(FIND_AGAIN, self._finding / FIND_SHARE) and not outrun:
            return False
        self._looked = time.monotonic()
        found = list(dict.fromkeys(each for path in self._paths for each in runs_under(path)))
        self._finding = time.monotonic() - self._looked
        # What was followed stays, also where its directory is gone for now; a path that was waited for gives way to
        # the runs that have appeared in it, or to the log, and a log to the run around it.
        known = {
            path: run
            for path, run in self._runs.items()
            if path in found or not (run.void or run_around(path) is not None)
        }
        for path in found:
            if path not in known or (known[path].void and not _same_kind(known[path], path)):
                known[path] = follow(path, "", total_steps=self._total, settings=self._settings, drawn=self._drawn)
        if list(known.items()) == list(self._runs.items()):
            return False
        self._runs = known
        for run, name in zip(known.values(), short_names(list(known)), strict=True):
            run.name = name
            run.judge_at_most(SHARE if len(known) <= MANY else JUDGED_SHARE / len(known))
            self._statuses.clear()
        return True


def short_names(paths: Sequence[Path]) -> list[str]:
    """For each path the shortest end of it that none of the others has."""
    parts = [Path(path).absolute().parts for path in paths]
    names = []
    for own in parts:
        length = 1
        while length < len(own) and sum(other[-length:] == own[-length:] for other in parts) > 1:
            length += 1
        names.append("/".join(own[-length:]))
    return names


def _same_kind(run: Followed, path: Path) -> bool:
    other = follow(path, "")
    return type(other) is type(run) and other.path == run.path


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
