"""steps.jsonl as curves, events.jsonl as marks on the time axis, with the guard's diagnoses."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stayfinite.core.curve import Curve, Spans
from stayfinite.core.decision import REFUSING
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.runs.directory import moment, number, record_in

COLUMNS = ("loss", "grad_norm", "lr", "loss_scale")
SIGNAL = "signal: "
"""Decisions that withhold the update."""

MOST_PARTS = 8  # loss terms with their own curve

MOST_SIGNALS = 32  # custom signals with their own curve, such as KL and reward


class Steps:
    """Reads steps.jsonl line by line."""

    def __init__(self) -> None:
        self.curves: dict[str, Curve] = {}
        self.decisions: Counter[str] = Counter()
        """Steps by decision."""
        self.count = 0
        """Distinct steps, across resumes."""
        self.last_step = 0.0
        self.last_loss: float | None = None
        """Loss of the last applied step, finite or not."""

    def add(self, record: Mapping[str, Any]) -> None:
        step = number(record.get("step"))
        self.count += 1
        if step is None or not abs(step) < 1e15:
            step = self.last_step + 1
        if self.count > 1 and step <= self.last_step:
            self._rewind(step)
        self.last_step = step
        decision = record.get("decision")
        if isinstance(decision, str):
            self.decisions[decision[:40]] += 1
        if not isinstance(decision, str) or decision not in REFUSING:
            parsed = number(record.get("loss"))
            self.last_loss = self.last_loss if parsed is None else parsed
        for name in COLUMNS:
            self._note(name, step, record.get(name))
        parts = record.get("parts")
        if isinstance(parts, dict):
            for name, value in parts.items():
                self._note(f"part: {name}"[:80], step, value)
        signals = record.get("signals")
        if isinstance(signals, dict):
            for name, value in signals.items():
                self._note(f"{SIGNAL}{name}"[:80], step, value)

    def _rewind(self, step: float) -> None:
        """Drop steps that a resumed run takes again."""
        self.count = max(1, self.count - int(self.last_step - step + 1))
        for curve in self.curves.values():
            curve.rewind(step)

    def _note(self, name: str, step: float, value: Any) -> None:
        parsed = number(value)
        if parsed is None:
            return
        curve = self.curves.get(name)
        if curve is None:
            signals = sum(each.startswith(SIGNAL) for each in self.curves)
            parts = len(self.curves) - signals
            if signals >= MOST_SIGNALS if name.startswith(SIGNAL) else parts >= len(COLUMNS) + MOST_PARTS:
                return
            curve = self.curves[name] = Curve()
        curve.add(step, parsed)


KINDS = {
    "veto": "veto", "cut": "cut", "rollback": "rollback", "escalate": "escalate", "stop": "stop",
    "checkpoint": "checkpoint", "incident": "incident", "finding": "finding", "restart": "restart", "resume": "restart",
    "failed": "error", "stopped": "stop", "bound": "bound", "new-phase": "phase",
    "stall": "error", "sign": "finding", "kl-raised": "finding",
}  # fmt: skip
"""Events to mark, and their kind. Other failed events are errors; the rest get no mark."""

BAD = frozenset({"loss-not-finite", "gradient-not-finite", "loss-spike", "gradient-spike", "replay-mismatch"})
"""Codes of bad steps."""

MOST_TIMES = 1_000
MOST_MARKS = 400  # per kind

_KIND = lazy_regex(r"ended with (\w{1,80})$")

LONGEST = 400  # characters kept of a reason


class Events:
    """Reads events.jsonl line by line."""

    def __init__(self) -> None:
        self.marks: dict[str, Spans] = {}
        self.counts: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        """Refused steps by code."""
        self.watched = 0
        """Bad steps that were applied because the guard only monitored."""
        self.last: dict[str, Any] = {}
        """The newest event."""
        self.begun = ""
        self.ended = ""
        """How the run ended: closed, stopped, failed; "" if it did not."""
        self.error = ""
        """The error of the training loop: `RuntimeError: disk full`; `KeyboardInterrupt` if interrupted."""
        self._stop: float | None = None
        """The step at which the guard last decided to stop."""
        self.times: list[tuple[float, float]] = []
        """Steps and seconds since the first event; thinned out for long runs."""
        self._began: float | None = None
        self._resumed: float | None = None
        """The step at which the current launch resumed, until the launch event arrives."""
        self.memory: dict[str, Any] = {}
        """Peak memory, from the latest event that reports it."""
        self.slowest: dict[str, Any] = {}
        """The rank that takes most of a step, as last measured."""
        self.stall: dict[str, Any] = {}
        """The last time a rank failed to arrive."""

    def add(self, record: Mapping[str, Any]) -> None:
        event = record.get("event")
        if not isinstance(event, str):
            return
        self.last = dict(record)
        self.counts[event[:40]] += 1
        if event in ("start", "restart"):
            self.begun = self.begun or str(record.get("time", ""))
            self.ended = self.error = ""
        elif event in ("closed", "stopped", "failed"):
            self.ended = event
            self.error = error_of(record) if event == "failed" else ""
        if isinstance(record.get("memory"), dict):
            self.memory = dict(record["memory"])
        if event == "slowest-rank":
            self.slowest = dict(record)
        elif event == "stall":
            self.stall = dict(record)
        step = number(record.get("step"))
        if step is not None and abs(step) < 1e15:
            self._note_time(step, record.get("time"))
        kind = KINDS.get(event) or ("error" if event.endswith("-failed") else None)
        # Accepted phases and monitored bad steps are not refusals, but still deserve a mark.
        if kind is None and event in ("accept", "clip"):
            kind = "notice"
            self.watched += record.get("code") in BAD
        if kind is None or step is None or not abs(step) < 1e15:
            return
        if event == "stopped" and self._stop == step:
            return  # the decision to stop is already marked there
        if event == "stop":
            self._stop = step
        if event == "restart" and self._resumed == step:
            self._resumed = None
            return  # the resume is already marked there
        if event == "resume":
            self._resumed = step
        if kind == "veto":
            self.codes[str(record.get("code"))[:60]] += 1
        spans = self.marks.setdefault(kind, Spans(MOST_MARKS))
        spans.add(kind, step, text=_text(record), ordinal=spans.total)

    def _note_time(self, step: float, time: Any) -> None:
        when = moment(time) if isinstance(time, str) else None
        if when is None:
            return
        self._began = when if self._began is None else self._began
        while self.times and self.times[-1][0] >= step:
            self.times.pop()  # a resumed run reaches these steps later
        self.times.append((step, when - self._began))
        if len(self.times) > MOST_TIMES:
            self.times = self.times[::2]


def error_of(record: Mapping[str, Any]) -> str:
    """The error in a `failed` event: `RuntimeError: disk full`."""
    kind = _KIND.search(str(record.get("reason") or "")[:LONGEST])
    words = " ".join(str(record.get("error") or "")[:LONGEST].split())
    return ": ".join(filter(None, (kind[1] if kind else "", words)))


def _text(record: Mapping[str, Any]) -> str:
    for name in ("reason", "verdict", "title", "error", "path", "checkpoint"):
        value = record.get(name)
        if isinstance(value, str) and value:
            return value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
    return ""


EVENT_FILES = "events*.jsonl"
TAIL = 1 << 16  # bytes read from the end of a file: a stop is among the last lines


def stopped_since(directory: Path, since: float) -> dict[str, Any] | None:
    """The newest `stopped` event of any rank since a time in seconds since 1970; None if there is none.

    Every rank that stops writes one, so losing some files hides nothing. The content is not trusted.
    """
    found: tuple[float, dict[str, Any]] | None = None
    try:
        files = sorted(directory.glob(EVENT_FILES))
    except OSError:
        return None
    for path in files:
        for line in _last_lines(path):
            event = record_in(line) if b'"stopped"' in line else {}
            when = moment(str(event.get("time"))) if event.get("event") == "stopped" else None
            if when is not None and when >= since and (found is None or when > found[0]):
                found = (when, event)
    return None if found is None else found[1]


def _last_lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            return file.read(TAIL).splitlines()
    except OSError:
        return []
