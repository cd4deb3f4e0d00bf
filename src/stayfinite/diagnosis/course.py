"""What a guarded run went through, apart from its numbers: refusals, rungs, endings, what was the matter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stayfinite.core.decision import Action, Code
from stayfinite.core.finding import Finding
from stayfinite.diagnosis.autopsies import AUTOPSY, proved_cause, surest
from stayfinite.diagnosis.happenings import finding_of
from stayfinite.readers.runs.directory import EVENTS, Step
from stayfinite.readers.runs.events import error_of

CALM = 100
"""Accepted steps after which a refusal is history; the ladder forgives after as many."""

LASTING = 500
"""Steps after which slow trouble that the guard reported, and did not report again, is taken to have passed."""

HARM = "harm"
"""The code of a rollback because of what followed a step that was taken."""

RUNGS = frozenset({Action.CUT, Action.ROLLBACK, Action.ESCALATE})
ENDS = ("closed", "stopped", "failed")
STARTS = ("start", "restart", "resume")
BY_HAND = "KeyboardInterrupt"
"""The error of a loop that somebody ended."""


@dataclass(slots=True, kw_only=True)
class Course:
    """What a run went through, apart from its numbers. Searching for an fp16 scale is no refusal here."""

    directory: Path = Path()
    """Of the run."""
    seen: int = 0
    """Steps."""
    refused: int = 0
    """Refused ones, ever."""
    lately: int = 0
    """Refused ones since ``CALM`` steps in a row were accepted."""
    in_a_row: int = 0
    """Refused ones at the end, since the last rung."""
    last_refused: int | None = None
    """The step of the last one."""
    last_code: str = ""
    """Why it was refused."""
    rung: str = ""
    """The rung taken lately: cut, rollback, escalate."""
    rung_step: int | None = None
    ended: str = ""
    """`closed`, `stopped`, `failed`; empty while it runs."""
    ended_because: str = ""
    by_hand: bool = False
    """Somebody ended it: Ctrl-C is no failure."""
    bad_now: bool = False
    """The newest step that touched the weights was not finite."""
    silent_seconds: float | None = None
    """Set where no step has come for far longer than usual."""
    _calm: int = 0
    """Accepted steps since the last refused one."""
    _since_rung: int = 0
    """Accepted steps since the last rung."""
    _proved: list[Finding] = field(default_factory=list)
    _reported: dict[str, tuple[int, Finding]] = field(default_factory=dict)
    """What the guard reported, and at which step."""

    @property
    def known(self) -> tuple[Finding, ...]:
        """What autopsies proved, and what the guard has reported lately."""
        # Parameters without a gradient stay so; other slow trouble passes, and the guard says when it is back.
        reported = [
            finding
            for seen, finding in self._reported.values()
            if self.seen - seen < LASTING or finding.cause == "unused-parameters"
        ]
        return (*self._proved, *reported)

    def take_step(self, step: Step) -> None:
        """One more step."""
        self.seen += 1
        if step.refused:
            self.refused += 1
            if step.code != Code.SCALE_SEARCH:
                self._refuse(step)
            return
        self.bad_now = any(value is not None and not math.isfinite(value) for value in (step.loss, step.grad_norm))
        self.in_a_row = 0
        self._calm += 1
        if self._calm >= CALM:
            self.lately = 0
        self._since_rung += 1
        if self._since_rung >= CALM:
            self.rung, self.rung_step = "", None

    def take_event(self, record: Mapping[str, Any]) -> None:
        """One more event of the first rank, or an autopsy of any."""
        event = record["event"]
        if event in ENDS:
            self.ended = str(event)
            self.by_hand = event == "failed" and error_of(record) == BY_HAND
            self.ended_because = ": ".join(str(record[name])[:400] for name in ("reason", "error") if record.get(name))
        elif event in STARTS:
            self.ended, self.ended_because, self.by_hand = "", "", False
        elif event == "autopsy":
            self._take_autopsy(record)
        elif event == "rollback" and record.get("code") == HARM:
            step = record.get("step")
            self.rung, self.rung_step, self._since_rung = "rollback", step if isinstance(step, int) else None, 0
        elif (finding := finding_of(record)) is not None:
            self._reported[finding.cause] = (self.seen, finding)

    def _take_autopsy(self, record: Mapping[str, Any]) -> None:
        # The event says it all. The file of the incident is written by a thread, and may come later or never.
        incident = record.get("incident")
        place = self.directory / incident[:200] / AUTOPSY if isinstance(incident, str) else self.directory / EVENTS
        finding = proved_cause(record, str(place))
        if finding is not None:
            self._proved = surest([*self._proved, finding])

    def _refuse(self, step: Step) -> None:
        self.lately += 1
        self.in_a_row += 1
        self._calm = 0
        self.last_refused, self.last_code = step.step, step.code
        if step.decision in RUNGS:
            self.rung, self.rung_step = step.decision, step.step
            self._since_rung = self.in_a_row = 0
