"""The live report page: whole when opened, then only changes."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stayfinite.core.run_status import RunStatus
from stayfinite.core.series import RunSeries
from stayfinite.readers.runs.directory import News
from stayfinite.readers.runs.events import Events, Steps
from stayfinite.readers.runs.reader import RunReader
from stayfinite.report.live.hub import Hub
from stayfinite.report.live.words import done_of, pace, standing
from stayfinite.report.page.data import log_data, page_data, run_data, run_words
from stayfinite.report.page.heat import heat_data
from stayfinite.report.page.html import page_csp, page_html
from stayfinite.report.page.plain import text
from stayfinite.report.page.series import marks_data, series_data

WHOLE_AFTER = 6_000
"""Points appended before the page gets freshly downsampled data."""

LOGS_EVERY = 2.0
"""Seconds between updates of a foreign log, which is sent whole."""

CLOCK_SECONDS = 5.0
"""Seconds between updates in which only times changed, such as "silent for 41 s"."""

PAGE_SECONDS = 5.0
"""Seconds for which a rendered page is reused; the stream delivers anything newer."""

DRAWN = ("series", "marks", "layers")
"""Keys sent by appending or when their file changes; all others are compared and set."""

NO_DIAGNOSIS: Mapping[str, Any] = {"verdict": "unknown", "findings": [], "trouble": [], "sources": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One run to show."""

    status: RunStatus
    diagnosis: Mapping[str, Any] = field(default_factory=lambda: NO_DIAGNOSIS)
    """As returned by ``Diagnosis.to_json()``."""
    reader: RunReader | None = None
    """For a guarded run."""
    series: RunSeries | None = None
    """For a foreign log."""
    news: News = field(default_factory=News)
    """Records read since the last update, for a guarded run."""


class LivePage:
    """Renders the page and its updates. Hold ``hub.lock`` from reading the runs until ``publish`` returns."""

    def __init__(self, *, title: str = "") -> None:
        self.hub = Hub(lambda: _encoded(self._data()))
        self._title = title
        self._shown: Sequence[Shown] = ()
        self._sent: dict[str, dict[str, Any]] = {}
        self._appended = 0
        self._evaluations: list[int] = []
        """Evaluations sent per run. They are rare, so a new one resends everything."""
        self._logs_sent: dict[str, float] = {}
        self.late = False
        """Whether an update is pending: call ``publish`` again soon, even if nothing new was read."""
        self._last_state: tuple[float, list[tuple[str, ...]]] = (0.0, [])
        """Time and content of the last state update."""
        self._page: tuple[float, bytes] | None = None
        self._policy = page_csp("events")

    def outdated(self, statuses: Sequence[RunStatus]) -> bool:
        """Whether the page's state is out of date, for example because a process was killed."""
        when, told = self._last_state
        if [_state_of(status)[:3] for status in statuses] != [each[:3] for each in told]:
            return True
        late = time.monotonic() - when > CLOCK_SECONDS
        return late and [_state_of(status) for status in statuses] != told

    def publish(self, shown: Sequence[Shown]) -> None:
        """Send what has changed to all viewers."""
        with self.hub.lock:
            self._last_state = (time.monotonic(), [_state_of(each.status) for each in shown])
            same = [each.status.path for each in shown] == [each.status.path for each in self._shown]
            self._shown, self.late = shown, False
            evaluations = [0 if each.reader is None else len(each.reader.evaluations) for each in shown]
            anew = not same or any(each.news.anew for each in shown) or self._appended > WHOLE_AFTER
            anew = anew or evaluations != self._evaluations
            self._evaluations = evaluations
            if anew:
                self._page, self._appended = None, 0
                data = self._data()
                self._sent = {run["id"]: {name: run[name] for name in run if name not in DRAWN} for run in data["runs"]}
                self.hub.publish(_encoded(data))
                return
            patches = [patch for place, each in enumerate(shown) if (patch := self._patch(f"r{place}", each))]
            if patches:
                self.hub.publish(_encoded({"patches": patches} | self._new_rules(patches)))

    def page(self) -> tuple[bytes, str]:
        """The page and its content security policy; may be a few seconds old."""
        with self.hub.lock:
            if self._page is None or time.monotonic() - self._page[0] > PAGE_SECONDS:
                made = page_html(self._data(), f"events?from={self.hub.now()}").encode()
                self._page = (time.monotonic(), made)
            return self._page[1], self._policy

    def _data(self) -> dict[str, Any]:
        return page_data([_whole_run(each) for each in self._shown], title=self._title)

    def _patch(self, name: str, each: Shown) -> dict[str, Any] | None:
        if each.reader is None:
            return self._log_patch(name, each)
        words = _live(run_words(each.reader, each.diagnosis, name=each.status.name), each.status)
        change = self._changed(name, words)
        if each.news.beside and each.reader.layers is not None:
            change["layers"] = heat_data(each.reader.layers)
        # Build curves and marks from the new records the same way as for the whole page.
        steps, events = Steps(), Events()
        for record in each.news.steps:
            steps.add(record)
        for record in each.news.events:
            events.add(record)
        series, marks = series_data(steps.curves), marks_data(events.marks)
        self._appended += sum(len(curve["x"]) for curve in series.values()) + len(marks)
        if not (change or series or marks):
            return None
        return {"id": name, "append": {"series": series, "marks": marks}, "set": change}

    def _log_patch(self, name: str, each: Shown) -> dict[str, Any] | None:
        if time.monotonic() < self._logs_sent.get(name, 0.0) + LOGS_EVERY:
            self.late = True
            return None
        self._logs_sent[name] = time.monotonic()
        data = _whole_run(each)
        change = self._changed(name, data)
        return {"id": name, "set": change} if change else None

    def _changed(self, name: str, words: dict[str, Any]) -> dict[str, Any]:
        sent = self._sent.setdefault(name, {})
        change = {key: value for key, value in words.items() if key != "id" and sent.get(key) != value}
        sent |= change
        return change

    def _new_rules(self, patches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The rules' pages, if findings have changed."""
        if not any("findings" in patch["set"] or "incidents" in patch["set"] for patch in patches):
            return {}
        runs = [{"name": "", **self._sent[f"r{place}"]} for place in range(len(self._shown))]
        return {"rules": page_data(runs)["rules"]}


def _whole_run(each: Shown) -> dict[str, Any]:
    if each.reader is not None:
        data = run_data(each.reader, each.diagnosis, name=each.status.name)
    else:
        data = log_data(each.series or RunSeries(each.status.path), each.diagnosis, name=each.status.name)
    return _live(data, each.status)


def _live(data: dict[str, Any], status: RunStatus) -> dict[str, Any]:
    """The data plus the fields of a live run."""
    health = status.health
    told = {"word": health.word.value, "reason": text(health.reason), "fix": text(health.fix)}
    # State the health once: no "Healthy: 63 steps" next to a warning.
    sentence = data["sentence"].removeprefix("Healthy: ") if health.word.alarms else data["sentence"]
    figures = _figures(data["figures"], status)
    return data | {"health": told, "standing": text(_standing(status)), "sentence": sentence, "figures": figures}


def _standing(status: RunStatus) -> str:
    """As on the terminal, but without the time since the run ended, which would change forever."""
    return status.ended if status.state == "ended" else standing(status)


def _state_of(status: RunStatus) -> tuple[str, ...]:
    """Fields that change with time alone: first those sent at once, then those that may wait."""
    return status.state, status.ended, status.health.word.value, status.health.reason, _standing(status)


def _figures(figures: list[list[str]], status: RunStatus) -> list[list[str]]:
    """The page's figures plus those of a live run."""
    live = [["done", done_of(status)], ["pace", pace(status)], ["state", _standing(status)]]
    return [[name, text(value)] for name, value in live if value] + figures


def _encoded(message: Mapping[str, Any]) -> bytes:
    """One line of JSON, since a newline would end the event."""
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
