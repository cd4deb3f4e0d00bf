"""A guarded run's directory as it grows: steps, events, and the launch record, read from where the last look ended.

A file may not exist yet, or be rotated, truncated, deleted and recreated, or replaced. The last bytes read are
compared, so a file that was emptied and has outgrown the old position is still detected.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from stayfinite.core.decision import REFUSING

BLOCK = 4 << 20  # bytes per look, so that one huge file does not starve the others

REMEMBERED = 64  # bytes before the current position that must be unchanged

LONGEST = 1 << 20  # incomplete lines longer than this are skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The result of one look."""

    anew: bool = False
    """The file was replaced: discard what was read before."""
    content: bytes = b""
    there: bool = True
    """Whether the file exists."""
    more: bool = False
    """Whether more can be read at once."""
    modified: float = 0.0
    """Modification time, in seconds since the epoch."""


class GrowingFile:
    """Remembers how far a file was read."""

    def __init__(self, path: Path, *, rewritten: bool = False) -> None:
        """``rewritten``: the file is always written as a whole, so any change invalidates what was read."""
        self.path = path
        self._rewritten = rewritten
        self._identity: tuple[int, int] | None = None
        self._position = 0
        self._before = b""
        self._stamp = -1

    def look(self) -> Piece:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            return Piece(there=False)
        try:
            return self._read(descriptor)
        except OSError:
            return Piece(there=False)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> Piece:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):  # a pipe would block
            return Piece(there=False)
        modified = status.st_mtime
        unchanged = status.st_mtime_ns == self._stamp and status.st_size == self._position
        identity = (status.st_dev, status.st_ino)
        if unchanged and identity == self._identity:
            return Piece(modified=modified)
        anew = self._identity is not None and not self._goes_on(descriptor, status)
        if anew:
            self._position, self._before = 0, b""
        self._identity, self._stamp = identity, status.st_mtime_ns
        content = os.pread(descriptor, BLOCK, self._position)
        self._position += len(content)
        self._before = (self._before + content[-REMEMBERED:])[-REMEMBERED:]
        return Piece(anew=anew, content=content, more=self._position < status.st_size, modified=modified)

    def _goes_on(self, descriptor: int, status: os.stat_result) -> bool:
        identity = (status.st_dev, status.st_ino)
        if self._rewritten and (status.st_mtime_ns != self._stamp or identity != self._identity):
            return False
        if status.st_size < self._position:
            return False
        if not self._position:
            return True
        return os.pread(descriptor, len(self._before), self._position - len(self._before)) == self._before


class GrowingLines:
    """Complete lines of a growing file; an incomplete one waits for its end."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._torn = b""

    def look(self) -> tuple[Piece, list[bytes]]:
        """Return the look and the lines completed by it."""
        piece = self._file.look()
        if piece.anew:
            self._torn = b""
        if not piece.content:
            return piece, []
        *whole, torn = (self._torn + piece.content).split(b"\n")
        self._torn = torn if len(torn) <= LONGEST else b""
        return piece, whole


def number(value: Any) -> float | None:
    """A number, including NaN and infinity; None for anything else."""
    if type(value) is float:  # the common case, called millions of times
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf if value > 0 else -math.inf


STEPS, EVENTS, RUN = "steps.jsonl", "events.jsonl", "run.json"
OTHER_RANKS = "events-rank*.jsonl"
MOST_RANKS = 64
LARGEST_RECORD = 8 << 20  # largest run.json to read, in bytes
_TOTALS = ("steps", "max_steps", "total_steps", "num_steps", "max_train_steps")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of steps.jsonl."""

    step: int | None
    loss: float | None
    grad_norm: float | None
    lr: float | None
    loss_scale: float | None
    decision: str
    code: str

    @property
    def refused(self) -> bool:
        """Whether the update was withheld."""
        return self.decision in REFUSING


@dataclass(slots=True)
class News:
    """New content of a run directory."""

    anew: bool = False
    """The files belong to another run: discard what was read before."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    """Lines of steps.jsonl; parse them with :func:`step_of`."""
    events: list[dict[str, Any]] = field(default_factory=list)
    beside: bool = False
    """Whether other files of the run have changed, if watched: layers, incidents, run.json."""
    there: bool = True
    more: bool = False
    modified: float = 0.0
    """Modification time of steps.jsonl."""

    @property
    def any(self) -> bool:
        return bool(self.anew or self.steps or self.events or self.beside)


class RunDirectory:
    """Reads a run directory incrementally. Its content is not trusted; anything unexpected is skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._run = GrowingFile(path / RUN, rewritten=True)
        self._open()
        self.launch: dict[str, Any] = {}
        """run.json, as last read."""

    def _open(self) -> None:
        self._steps = GrowingLines(self.path / STEPS)
        self._events: dict[str, GrowingLines] = {EVENTS: GrowingLines(self.path / EVENTS)}

    def news(self) -> News:
        """Steps and events since the last call."""
        # Events first: each is written after its steps, so the steps of every event read here are present.
        news = self._events_since()
        steps, lines = self._steps.look()
        if steps.anew:
            # The steps are another run's, so read its events from the start too.
            self._open()
            news = self._events_since()
            steps, lines = self._steps.look()
            news.anew = True
        news.there, news.more, news.modified = news.there or steps.there, news.more or steps.more, steps.modified
        news.steps = [record for line in lines if "step" in (record := record_in(line))]
        piece = self._run.look()
        if piece.content and not piece.more:
            self.launch = record_in(piece.content)
        elif piece.anew or not piece.there:
            self.launch = self.launch if not news.anew else {}
        return news

    def _events_since(self) -> News:
        news = News(there=False)
        self._meet_ranks()
        for name, events in self._events.items():
            piece, lines = events.look()
            news.there = news.there or piece.there
            news.more = news.more or piece.more
            rank = "" if name == EVENTS else name.removeprefix("events-rank").partition(".")[0]
            for line in lines:
                record = record_in(line)
                if isinstance(record.get("event"), str):
                    news.events.append(record | ({"rank": rank} if rank else {}))
        return news

    @property
    def total_steps(self) -> int | None:
        """Planned steps of the run from run.json: `steps`, or an equivalent setting."""
        launches = self.launch.get("launches")
        last = launches[-1] if isinstance(launches, list) and launches else {}
        for part in (self.launch, last, self.launch.get("config"), _get(last, "config")):
            for name in _TOTALS:
                total = number(_get(part, name))
                if total is not None and math.isfinite(total) and total >= 1:
                    return int(total)
        return None

    @property
    def ends(self) -> float | None:
        """When a time-limited run ends, in seconds since 1970; None if run.json does not say."""
        ends = self.launch.get("ends")
        return moment(ends) if isinstance(ends, str) else None

    @property
    def minutes(self) -> float | None:
        """Planned minutes of the run; None if run.json does not say."""
        minutes = number(self.launch.get("minutes"))
        return minutes if minutes is not None and math.isfinite(minutes) and minutes > 0 else None

    def _meet_ranks(self) -> None:
        try:
            for path in sorted(self.path.glob(OTHER_RANKS))[:MOST_RANKS]:
                self._events.setdefault(path.name, GrowingLines(path))
        except OSError:
            return


def moment(text: str) -> float | None:
    """Parse an ISO 8601 time to seconds since 1970."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _get(part: Any, name: str) -> Any:
    return part.get(name) if isinstance(part, Mapping) else None


def record_in(line: bytes) -> dict[str, Any]:
    """The JSON object in a line; empty if there is none."""
    if len(line) > LARGEST_RECORD:
        return {}
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def step_of(record: Mapping[str, Any]) -> Step:
    """Parse one line of steps.jsonl, whose values may be of any type."""
    step = number(record.get("step"))
    return Step(
        int(step) if step is not None and math.isfinite(step) else None,
        number(record.get("loss")),
        number(record.get("grad_norm")),
        number(record.get("lr")),
        number(record.get("loss_scale")),
        str(record.get("decision") or ""),
        str(record.get("code") or ""),
    )
