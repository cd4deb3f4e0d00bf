"""A guarded run while it is written: what is new is read once, judged by the rules, and told as a ``RunStatus``."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from stayfinite.core.decision import Code
from stayfinite.core.pace import Pace
from stayfinite.core.run_status import Happening, RunStatus, State
from stayfinite.core.series import RunSeries
from stayfinite.core.settings import Settings
from stayfinite.core.sketch import Sketch
from stayfinite.diagnosis.course import STARTS, Course
from stayfinite.diagnosis.diagnose import judge, with_known
from stayfinite.diagnosis.diagnosis import Diagnosis, Verdict
from stayfinite.diagnosis.happenings import happening_of
from stayfinite.diagnosis.health import health_of
from stayfinite.diagnosis.judging import PacedJudge
from stayfinite.errors import StayfiniteError
from stayfinite.readers.configs import read_config
from stayfinite.readers.runs.directory import RUN, STEPS, News, RunDirectory, Step, moment, step_of
from stayfinite.readers.runs.reader import RunReader

JUDGED = 8_192
"""Points of the series that the rules see: enough to know a course by, few enough to judge it every few seconds."""

SILENCE = 120.0
"""Seconds without a step before anybody wonders, and at least as long as ``USUAL`` steps take."""
USUAL = 50

HAPPENINGS = 200
"""Events that are kept for showing."""


class LiveRun:
    """Follows one run directory, which need not exist yet."""

    def __init__(
        self, path: Path, name: str, *, total_steps: int | None = None, source: RunDirectory | RunReader | None = None
    ) -> None:
        """``source`` reads the directory: one that keeps more than is needed here, where somebody draws it all."""
        self.path, self.name = path, name
        self._total = total_steps
        self.source = source or RunDirectory(path)
        self._judge = PacedJudge(self._judgement)
        self.news = News()
        """What the last look brought."""
        self._clear()

    def _clear(self) -> None:
        self._series = RunSeries(str(self.path / STEPS), kind="stayfinite", most=JUDGED)
        self._settings: Settings | None = None
        self._losses, self._norms = Sketch(), Sketch()
        self._happenings: deque[Happening] = deque(maxlen=HAPPENINGS)
        self._pace = Pace()
        self._last: Step | None = None
        self._course = Course(directory=self.path)
        self._modified = 0.0
        self._there = False

    def look(self, *, at_once: bool = False) -> bool:
        """Read what is new and judge it if that is due (``at_once``: now); returns whether anything changed."""
        changed = False
        while True:
            self.news = news = self.source.news()
            changed = self._take(news) or changed
            if not (news.more and at_once):
                break
        return self._judge.look(at_once=at_once) or changed

    def judge_at_most(self, share: float) -> None:
        """Let the rules take this share of the time, 0 to 1."""
        self._judge.share = share

    @property
    def behind(self) -> bool:
        """Whether more is waiting to be read at once."""
        return self.news.more

    @property
    def void(self) -> bool:
        """Whether nothing was read yet."""
        return not (self._course.seen or self._happenings)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The last judgment of the rules, with what autopsies have proved and the guard has reported lately."""
        found, known = self._judge.found, self._course.known
        if found is None or not known:
            return found
        verdict: Verdict = "sick" if found.verdict == "sick" else "warning"
        return replace(found, verdict=verdict, findings=with_known(list(found.findings), known))

    def status(self, *, width: int = 60, happenings: int = HAPPENINGS) -> RunStatus:
        """How the run stands now."""
        last = self._last
        quiet = None if not self._modified else max(0.0, time.time() - self._modified)
        state = self._state(quiet)
        self._course.silent_seconds = quiet if state == "silent" else None
        total = self._total or self.source.total_steps
        step = None if last is None else last.step
        return RunStatus(
            name=self.name,
            path=str(self.path),
            health=health_of(self._judge.found, self._course),
            state=state,
            ended=self._course.ended,
            step=step,
            total_steps=total,
            minutes=self.source.minutes,
            minutes_over=self._minutes_over(state),
            seen=self._course.seen,
            refused=self._course.refused,
            loss=None if last is None else last.loss,
            grad_norm=None if last is None else last.grad_norm,
            lr=None if last is None else last.lr,
            loss_scale=None if last is None else last.loss_scale,
            rate=self._pace.rate,
            eta_seconds=self._remaining(step, total) if state == "running" else None,
            quiet_seconds=quiet,
            happenings=tuple(self._happenings)[-happenings:] if happenings else (),
            losses=self._losses.strokes(width),
            grad_norms=self._norms.strokes(width),
        )

    def _minutes_over(self, state: State) -> float | None:
        """The share of the run's minutes that is over; the clock of a run that has ended stands at its last step."""
        ends, minutes = self.source.ends, self.source.minutes
        if ends is None or minutes is None or not self._modified:
            return None
        now = self._modified if state == "ended" else time.time()
        return min(1.0, max(0.0, 1.0 - (ends - now) / (60.0 * minutes)))

    def _remaining(self, step: int | None, total: int | None) -> float | None:
        """Seconds to the last step, or until the time is over: to what comes first."""
        ends = self.source.ends
        by_time = None if ends is None else max(0.0, ends - time.time())
        known = [each for each in (self._pace.remaining(step, total), by_time) if each is not None]
        return min(known, default=None)

    def _take(self, news: News) -> bool:
        if news.anew:
            self._clear()
            self._judge.forget()
        changed = news.any or news.there != self._there
        self._there = news.there
        for record in news.steps:
            self._take_step(step_of(record))
        for record in news.events:
            self._take_event(record)
        if news.steps and self._last is not None and self._last.step is not None:
            self._modified = news.modified
            self._pace.note(news.modified, self._last.step)
        if news.steps or any(record.get("event") == "autopsy" for record in news.events):
            self._judge.changed()
        return changed

    def _take_step(self, step: Step) -> None:
        self._last = step
        self._course.take_step(step)
        if step.loss is not None:
            self._losses.add(step.loss)
        if step.grad_norm is not None:
            self._norms.add(step.grad_norm)
        line = self._course.seen
        if not step.refused:
            self._series.add(line, step.step, step.loss, step.grad_norm, step.lr, step.loss_scale)
        elif step.code == Code.SCALE_SEARCH:
            # The scaler's own business. A search that finds no scale is none any more: the guard then calls it a veto.
            self._series.add(line, step.step, lr=step.lr, loss_scale=step.loss_scale)

    def _take_event(self, record: dict[str, Any]) -> None:
        happening = happening_of(record)
        if happening is not None:
            self._happenings.append(happening)
        if record.get("rank") and record["event"] != "autopsy":
            return
        self._course.take_event(record)
        if record["event"] in STARTS and happening is not None and happening.step is not None:
            begun = moment(happening.time)
            if begun is not None:
                self._pace.begin(begun, happening.step)

    def _judgement(self) -> Diagnosis:
        if self._settings is None:
            self._settings = self._read_settings()
        return judge([self._series], self._settings)

    def _read_settings(self) -> Settings:
        try:
            return read_config(self.path / RUN)
        except (StayfiniteError, OSError):
            return Settings()

    def _state(self, quiet: float | None) -> State:
        if self._course.ended:
            return "ended"
        if not self._there:
            return "gone" if self._course.seen else "waiting"
        if not self._course.seen:
            return "waiting"
        rate = self._pace.rate
        patience = max(SILENCE, USUAL / rate if rate else 0.0)
        return "silent" if quiet is not None and quiet > patience else "running"
