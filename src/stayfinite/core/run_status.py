"""How a run stands at one moment: what a live view shows, as plain data. Judged and drawn elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from stayfinite.core.sketch import Stroke

State = Literal["waiting", "running", "silent", "ended", "gone"]
"""`waiting` for a first step; `silent`: no step for long; `ended`: the run said so; `gone`: its files have vanished."""


class HealthWord(StrEnum):
    """How a run is, in one word; the later, the worse. `unknown` as long as nothing was measured."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    WARNING = "warning"
    SICK = "sick"
    CRITICAL = "critical"

    @property
    def alarms(self) -> bool:
        """Whether a person should look."""
        return self in (HealthWord.WARNING, HealthWord.SICK, HealthWord.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A word, and why."""

    word: HealthWord
    reason: str
    """One sentence without a full stop."""
    fix: str = ""
    """What to do, where a cause is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One line of events.jsonl, or a turn in a log, as a person would tell it."""

    step: int | None
    event: str
    """`veto`, `rollback`, `finding`, `autopsy`, `checkpoint`, ..."""
    text: str
    time: str = ""
    """ISO 8601, where it is known."""
    grave: bool = False
    """Whether it tells of trouble."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"step": self.step, "event": self.event, "text": self.text, "time": self.time, "grave": self.grave}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How one run stands."""

    name: str
    """As short as tells the runs apart."""
    path: str
    health: Health
    state: State
    ended: str = ""
    """How, where it has: `closed`, `stopped`, or `failed`, after which a supervisor may start it again."""
    step: int | None = None
    """The newest."""
    total_steps: int | None = None
    minutes: float | None = None
    """That the run is to have, where time ends it."""
    minutes_over: float | None = None
    """The share of them that is over, 0 to 1."""
    seen: int = 0
    """Steps, or measurements, that were read."""
    refused: int = 0
    """Of them."""
    loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    loss_scale: float | None = None
    rate: float | None = None
    """Steps a second."""
    eta_seconds: float | None = None
    quiet_seconds: float | None = None
    """Since the newest step."""
    happenings: Sequence[Happening] = ()
    """The newest ones, oldest first."""
    losses: Sequence[Stroke] = ()
    grad_norms: Sequence[Stroke] = ()

    @property
    def steps_done(self) -> float | None:
        """The share of its steps that the run has behind it, 0 to 1."""
        if self.step is None or not self.total_steps:
            return None
        return min(1.0, max(0.0, self.step / self.total_steps))

    @property
    def ends_by_time(self) -> bool:
        """Whether, of steps and minutes, the minutes are over first, as far as one can tell."""
        return self.minutes_over is not None and self.minutes_over >= (self.steps_done or 0.0)

    @property
    def done(self) -> float | None:
        """How much of the run is done, 0 to 1: by its steps or by its minutes, whichever ends it."""
        return self.minutes_over if self.ends_by_time else self.steps_done

    def to_json(self) -> dict[str, Any]:
        """As plain data that any JSON reader takes: what is not finite is the text `nan`, `inf` or `-inf`."""
        return {
            "name": self.name,
            "path": self.path,
            "health": self.health.word.value,
            "reason": self.health.reason,
            "fix": self.health.fix,
            "state": self.state,
            "ended": self.ended,
            "step": self.step,
            "total_steps": self.total_steps,
            "minutes": plain_number(self.minutes),
            "done": plain_number(self.done),
            "seen": self.seen,
            "refused": self.refused,
            "loss": plain_number(self.loss),
            "grad_norm": plain_number(self.grad_norm),
            "lr": plain_number(self.lr),
            "loss_scale": plain_number(self.loss_scale),
            "rate": plain_number(self.rate),
            "eta_seconds": plain_number(self.eta_seconds),
            "quiet_seconds": plain_number(self.quiet_seconds),
            "happenings": [happening.to_json() for happening in self.happenings],
        }


def plain_number(value: float | None) -> float | str | None:
    """A number that strict JSON can hold; `nan`, `inf`, `-inf` as text."""
    return value if value is None or math.isfinite(value) else str(float(value))
