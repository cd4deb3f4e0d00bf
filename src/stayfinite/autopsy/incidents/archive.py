"""The incidents of one run: written by a thread beside training, few of them, and never a reason to stop."""

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
    """What became of an incident."""

    step: int
    path: Path | None
    """Where it is; None if it could not be written."""
    error: Exception | None
    nbytes: int
    seconds: float
    """How long it took in the background."""


class Archive:
    """A run's directory of incidents.

    Arguments:
        directory: made when it is needed.
        most: incidents that a run may have, those of earlier launches among them.
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
        """The number that the next incident will have; None when there are as many as a run may have.

        Raises:
            OSError: the directory cannot be read.
        """
        # By number, and those under way first: one that is put in its place meanwhile counts once, neither twice nor
        # not at all.
        known = self._under_way.copy()
        known.update(int(path.name) for path in incidents_in(self.directory))
        if len(known) >= self._most:
            return None
        self._number = max([self._number, *known]) + 1
        return self._number

    def file(self, number: int, draft: Draft) -> None:
        """Hand an incident over to be written under a number. Does not wait, and never raises for the disk."""
        self._under_way.add(number)
        self._queue(lambda: self._write(number, draft))

    def attach(self, number: int, autopsy: Mapping[str, Any], done: Callable[[Exception | None], None]) -> None:
        """Put the autopsy into an incident once that is written; ``done`` hears, in the thread, why it could not be."""

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
        """What has become known since the last call; with ``wait`` everything is written by then."""
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

        # Not a daemon: a program that ends meanwhile finishes its last incident.
        self._thread = threading.Thread(target=in_turn, name="stayfinite incident")
        self._thread.start()

    def _write(self, number: int, draft: Draft) -> None:
        begun = time.monotonic()
        path, trouble = None, None
        try:
            shelf.sweep(self.directory)
            path = self._paths[number] = write_incident(self.directory, number, draft, self._token)
        except Exception as error:
            # Whatever it was, training goes on; it hears of it from collect().
            trouble = error
        finally:
            self._under_way.discard(number)
            draft.done()
        seconds = time.monotonic() - begun
        self._filed.append(Filed(step=draft.step, path=path, error=trouble, nbytes=draft.nbytes, seconds=seconds))
