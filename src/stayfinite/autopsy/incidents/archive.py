"""Incidents of one run, written by a thread; few of them, and never a reason to stop."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.autopsy.incidents.incident_files import Draft, incidents_in, write_autopsy, write_incident
from stayfinite.state import shelf


@dataclass(frozen=True, kw_only=True, slots=True)
class Filed:
    """Result of writing an incident."""

    step: int
    path: Path | None
    """Directory of the incident; None if it could not be written."""
    error: Exception | None
    nbytes: int
    seconds: float
    """Time spent in the background."""


class Archive:
    """A run's directory of incidents.

    Arguments:
        directory: created if needed.
        most: most incidents of a run, including earlier launches.
    """

    def __init__(self, directory: Path, most: int) -> None:
        self.directory = directory
        self._most = most
        self._token = shelf.own_token()
        self._thread: threading.Thread | None = None
        self._filed: deque[Filed] = deque()
        self._paths: dict[int, Path] = {}
        self._number = 0
        self._under_way: set[int] = set()

    def number(self) -> int | None:
        """Number of the next incident; None if the run has reached its limit.

        Raises:
            OSError: the directory cannot be read.
        """
        # Pending ones first: one that is renamed meanwhile then counts exactly once.
        known = self._under_way.copy()
        known.update(int(path.name) for path in incidents_in(self.directory))
        if len(known) >= self._most:
            return None
        self._number = max([self._number, *known]) + 1
        return self._number

    def file(self, number: int, draft: Draft) -> None:
        """Start writing an incident under a number. Does not wait, and never raises for disk errors."""
        self._under_way.add(number)
        self._queue(lambda: self._write(number, draft))

    def attach(self, number: int, autopsy: Mapping[str, Any], done: Callable[[Exception | None], None]) -> None:
        """Add the autopsy to an incident once it is written; ``done`` gets the error or None, in the thread."""

        def write() -> None:
            if (path := self._paths.get(number)) is not None:
                try:
                    write_autopsy(path, autopsy)
                except OSError as error:
                    done(error)
                else:
                    done(None)

        self._queue(write)

    def collect(self, *, wait: bool = False) -> list[Filed]:
        """Results since the last call; with ``wait`` after everything is written."""
        if wait and self._thread is not None:
            self._thread.join()
            self._thread = None
        return [self._filed.popleft() for _ in range(len(self._filed))]

    def _queue(self, work: Callable[[], None]) -> None:
        before = self._thread

        def in_turn() -> None:
            if before is not None:
                before.join()
            work()

        # Not a daemon: a program that exits finishes its last incident.
        self._thread = threading.Thread(target=in_turn, name="stayfinite incident")
        self._thread.start()

    def _write(self, number: int, draft: Draft) -> None:
        begun = time.monotonic()
        path, trouble = None, None
        try:
            shelf.sweep(self.directory)
            path = self._paths[number] = write_incident(self.directory, number, draft, self._token)
        except Exception as error:
            # Training continues; the caller gets the error from collect().
            trouble = error
        finally:
            self._under_way.discard(number)
            draft.done()
        seconds = time.monotonic() - begun
        self._filed.append(Filed(step=draft.step, path=path, error=trouble, nbytes=draft.nbytes, seconds=seconds))
