"""Any other training's log while it is written, told as a ``RunStatus`` like a guarded run."""

from __future__ import annotations

import math
import time
from collections import deque
from pathlib import Path

from stayfinite.core.pace import Pace
from stayfinite.core.run_status import Happening, RunStatus, State
from stayfinite.core.series import RunSeries
from stayfinite.core.settings import Settings
from stayfinite.core.sketch import Stroke, strokes_of
from stayfinite.diagnosis.course import Course
from stayfinite.diagnosis.diagnose import judge
from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.diagnosis.health import health_of, worth_naming
from stayfinite.diagnosis.judging import PacedJudge, Turn
from stayfinite.diagnosis.live_run import HAPPENINGS, SILENCE, USUAL
from stayfinite.diagnosis.onset import onset_of
from stayfinite.readers.logs import LogReader
from stayfinite.readers.runs.directory import GrowingFile


class LiveLog:
    """Follows one log file, which need not exist yet. The log does not say when it ends, so silence alone is no alarm
    unless the log has been seen to grow and is short of the steps that it promises.
    """

    def __init__(
        self, path: Path, name: str, *, total_steps: int | None = None, settings: Settings | None = None
    ) -> None:
        self.path, self.name = path, name
        self._total = total_steps
        self._settings = settings or Settings()
        # A JSON document is written as a whole each time; other logs are appended to.
        self._file = GrowingFile(path, rewritten=path.suffix.lower() == ".json")
        self._judge = PacedJudge(self._judgement)
        self._there = self._more = False
        self._modified = 0.0
        self._clear()

    def _clear(self) -> None:
        self._reader = LogReader(str(self.path))
        self._pace = Pace()
        self._turn = Turn()
        self._pieces = 0
        self._told: set[str] = set()
        self._happenings: deque[Happening] = deque(maxlen=HAPPENINGS)
        self._series: RunSeries | None = None

    def look(self, *, at_once: bool = False) -> bool:
        """Read what is new and judge it if that is due (``at_once``: now); returns whether anything changed."""
        changed = False
        while True:
            piece = self._file.look()
            if piece.anew:
                self._clear()
                self._judge.forget()
            changed = changed or piece.anew or bool(piece.content) or piece.there != self._there
            self._there, self._more = piece.there, piece.more
            if piece.content:
                self._reader.feed(piece.content)
                self._pieces += 1
                self._modified = piece.modified
            if not piece.more or not at_once:
                break
        if changed and self._pieces:
            self._series = max(self._reader.series, key=lambda run: run.points_seen, default=None)
            self._judge.changed()
            self._turn.see(None if self._series is None else self._series.last)
            self._judge.urgent = self._turn.now
            step = self._step
            if step is not None:
                self._pace.note(self._modified, step)
        if self._judge.look(at_once=at_once):
            self._tell()
            return True
        return changed

    def judge_at_most(self, share: float) -> None:
        """Let the rules take this share of the time, 0 to 1."""
        self._judge.share = share

    @property
    def behind(self) -> bool:
        """Whether more is waiting to be read at once."""
        return self._more

    @property
    def turning(self) -> bool:
        """Whether its newest numbers may be turning bad."""
        return self._turn.now

    @property
    def void(self) -> bool:
        """Whether nothing was read yet."""
        return not self._pieces

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The last judgment of the rules."""
        return self._judge.found

    @property
    def series(self) -> RunSeries | None:
        """What was read."""
        return self._series

    def status(self, *, width: int = 60, happenings: int = HAPPENINGS) -> RunStatus:
        """How the run stands now."""
        series = self._series
        last = None if series is None else series.last
        quiet = max(0.0, time.time() - self._modified) if self._modified else None
        told = None if series is None else series.total_steps
        total = self._total or (int(told) if told is not None and math.isfinite(told) else None)
        step = self._step
        rate = self._pace.rate
        patience = max(SILENCE, USUAL / rate if rate else 0.0)
        short = self._pieces > 1 and total is not None and step is not None and step < total
        silent = quiet is not None and quiet > patience
        course = Course(
            seen=0 if series is None else series.points_seen,
            bad_now=last is not None and last.bad and not last.skipped,
            silent_seconds=quiet if silent and short else None,
        )
        state: State = "silent" if silent else "running"
        if series is None or not series.points_seen:
            state = "waiting"
        elif not self._there:
            state = "gone"
        return RunStatus(
            name=self.name,
            path=str(self.path),
            health=health_of(self._judge.found, course),
            state=state,
            step=step,
            total_steps=total,
            seen=course.seen,
            refused=0,
            loss=_newest(series, "loss"),
            grad_norm=_newest(series, "grad_norm"),
            lr=_newest(series, "lr"),
            loss_scale=_newest(series, "loss_scale"),
            rate=rate,
            eta_seconds=self._pace.remaining(step, total) if state == "running" else None,
            quiet_seconds=quiet,
            happenings=tuple(self._happenings)[-happenings:] if happenings else (),
            losses=_strokes(series, "loss", width),
            grad_norms=_strokes(series, "grad_norm", width),
        )

    @property
    def _step(self) -> int | None:
        last = None if self._series is None else self._series.last
        if last is None or last.step is None or not math.isfinite(last.step):
            return None
        return int(last.step)

    def _judgement(self) -> Diagnosis:
        return judge(self._reader.series, self._settings)

    def _tell(self) -> None:
        """What is newly wrong is a happening: logs have no events of their own."""
        found = self._judge.found
        cause = worth_naming(found)
        told = len(self._told)
        for word in () if found is None else found.trouble:
            kind = word.partition(" from ")[0]
            if kind not in self._told:
                self._told.add(kind)
                because = "" if cause is None else f"; {cause.code} {cause.cause} ({cause.confidence:.0%}): {cause.fix}"
                began = onset_of(kind, word, self._reader.series)
                step = self._step if began is None else began
                self._happenings.append(Happening(step=step, event="trouble", text=f"{word}{because}", grave=True))
                cause = None  # once
        self._turn.judged(new=len(self._told) > told)


def _newest(series: RunSeries | None, name: str) -> float | None:
    """The newest value of a column; lines may hold only some of them."""
    if series is None or series.last is None:
        return None
    value: float | None = getattr(series.last, name)
    if value is None:
        column = series.column(name)
        value = column[-1][1] if column else None
    return value


def _strokes(series: RunSeries | None, name: str, width: int) -> list[Stroke]:
    return [] if series is None else strokes_of([value for _, value, _ in series.column(name)], width)
