"""Status of a run at one moment, as plain data for live views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

from stayfinite.core.sketch import Stroke

State = Literal["waiting", "running", "silent", "ended", "gone"]
"""`waiting` for a first step; `silent`: no step for long; `ended` by the run itself; `gone`: its files were removed."""


class HealthWord(StrEnum):
    """Health of a run, mildest first; `unknown` until something was measured."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    WARNING = "warning"
    SICK = "sick"
    CRITICAL = "critical"

    @property
    def alarms(self) -> bool:
        return self in (HealthWord.WARNING, HealthWord.SICK, HealthWord.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A health word and its reason."""

    word: HealthWord
    reason: str
    """One sentence without a period."""
    fix: str = ""
    """What to do, if the cause is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One line of events.jsonl, or a turn in a log, in words."""

    step: int | None
    event: str
    """`veto`, `rollback`, `finding`, `autopsy`, `checkpoint`, ..."""
    text: str
    time: str = ""
    """ISO 8601, if known."""
    grave: bool = False
    """Whether it is trouble."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


NUMBERS = (
    "step", "total_steps", "minutes", "done", "seen", "refused", "loss", "grad_norm", "lr", "loss_scale", "rate",
    "eta_seconds", "quiet_seconds",
)  # fmt: skip
"""Numbers of a status, as they are printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Status of one run."""

    name: str
    """Shortest name that is unique among the runs."""
    path: str
    health: Health
    state: State
    ended: str = ""
    """How it ended: `closed`, `stopped`, or `failed` (a supervisor may restart it); empty while it runs."""
    step: int | None = None
    """The newest step."""
    total_steps: int | None = None
    minutes: float | None = None
    """Planned duration, if time ends the run."""
    minutes_over: float | None = None
    """Share of the minutes used, 0 to 1."""
    seen: int = 0
    """Steps or measurements read."""
    refused: int = 0
    """Steps refused."""
    loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    loss_scale: float | None = None
    rate: float | None = None
    """Steps per second."""
    eta_seconds: float | None = None
    quiet_seconds: float | None = None
    """Seconds since the newest step."""
    happenings: Sequence[Happening] = ()
    """The newest events, oldest first."""
    losses: Sequence[Stroke] = ()
    grad_norms: Sequence[Stroke] = ()

    @property
    def steps_done(self) -> float | None:
        """Share of the steps done, 0 to 1; None if not known."""
        if self.step is None or not self.total_steps:
            return None
        return min(1.0, max(0.0, self.step / self.total_steps))

    @property
    def ends_by_time(self) -> bool:
        """Whether the minutes are likely to end the run before the steps do."""
        return self.minutes_over is not None and self.minutes_over >= (self.steps_done or 0.0)

    @property
    def done(self) -> float | None:
        """Share of the run done, 0 to 1: by steps or by minutes, whichever ends it."""
        return self.minutes_over if self.ends_by_time else self.steps_done

    def to_json(self) -> dict[str, Any]:
        """Plain data for strict JSON: non-finite numbers become `nan`, `inf` or `-inf`."""
        return {
            "name": self.name,
            "path": self.path,
            "health": self.health.word.value,
            "reason": self.health.reason,
            "fix": self.health.fix,
            "state": self.state,
            "ended": self.ended,
            **{name: plain_number(getattr(self, name)) for name in NUMBERS},
            "happenings": [happening.to_json() for happening in self.happenings],
        }


def plain_number(value: float | None) -> float | str | None:
    """A number for strict JSON; non-finite ones become `nan`, `inf` or `-inf`."""
    return value if value is None or math.isfinite(value) else str(float(value))
