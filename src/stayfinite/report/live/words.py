"""Figures and events of a run in words, the same on every screen; repeated events of consecutive steps are one line."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from stayfinite.core.durations import in_words
from stayfinite.core.run_status import Happening, RunStatus
from stayfinite.report.printable import printable


@dataclass(frozen=True, slots=True)
class Spell:
    """One event, or several equal ones in a row."""

    first: Happening
    last: Happening
    count: int = 1

    @property
    def steps(self) -> str:
        """`41` or `41-60`; empty if no step is known."""
        if self.first.step is None or self.last.step is None:
            return ""
        span = "" if self.first.step == self.last.step else f"-{self.last.step:,}"
        return f"{self.first.step:,}{span}"

    @property
    def times(self) -> str:
        """` x20`; empty for one."""
        return f" x{self.count:,}" if self.count > 1 else ""


def spells(happenings: Iterable[Happening]) -> list[Spell]:
    """The events in order, equal ones of consecutive steps merged."""
    found: list[Spell] = []
    for each in happenings:
        before = found[-1] if found else None
        if before is not None and _goes_on(before.last, each):
            found[-1] = Spell(before.first, each, before.count + 1)
        else:
            found.append(Spell(each, each))
    return found


def _goes_on(before: Happening, each: Happening) -> bool:
    if before.step is None or each.step != before.step + 1:
        return False
    return (before.event, before.text) == (each.event, each.text)


def number(value: float | None) -> str:
    """`0.2722`, `65,536`, `1.7e-05`, `nan`; a dash for None."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(float(value))
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value):,}"
    return f"{value:.4g}"


def progress(status: RunStatus) -> str:
    """`step 1,234 of 5,000 (25%)`; `step 1,234, 60% of 5 min` if the run is limited by time."""
    if status.step is None:
        plural = "" if status.seen == 1 else "s"
        return f"{status.seen:,} measurement{plural}" if status.seen else "no step yet"
    if status.done is None:
        return f"step {status.step:,}"
    if status.ends_by_time:
        return f"step {status.step:,}, {done_of(status)}"
    return f"step {status.step:,} of {status.total_steps:,} ({status.done:.0%})"


def done_of(status: RunStatus) -> str:
    """`25% of 5,000`, `60% of 5 min`; empty if the length is unknown."""
    if status.done is None:
        return ""
    whole = f"{status.minutes:,g} min" if status.ends_by_time else f"{status.total_steps:,}"
    return f"{status.done:.0%} of {whole}"


def pace(status: RunStatus) -> str:
    """`3.2 steps/s, 20 min to go`; empty if unknown, or once the run has ended."""
    if status.state in ("ended", "silent", "gone"):
        return ""
    rate, seconds = status.rate, status.eta_seconds
    speed = "" if rate is None else f"{rate:.3g} steps/s" if rate >= 0.5 else f"{in_words(1 / rate)} a step"
    return ", ".join(filter(None, (speed, "" if seconds is None else f"{in_words(seconds)} to go")))


def standing(status: RunStatus) -> str:
    """State of a run that is not simply running."""
    ago = f" {in_words(status.quiet_seconds)} ago" if status.quiet_seconds is not None else ""
    return {
        "waiting": "waiting for the first step",
        "running": "",
        "silent": f"last step{ago}",
        "ended": f"ended{ago}",
        "gone": "files are gone; waiting for them",
    }[status.state]


def one_line(status: RunStatus) -> str:
    """Everything in one line, for logs and pipes."""
    figures = [progress(status)] if status.seen else []
    figures += [
        f"{name} {number(value)}"
        for name, value in (("loss", status.loss), ("grad_norm", status.grad_norm), ("lr", status.lr))
        if value is not None
    ]
    if status.refused:
        figures.append(f"{status.refused:,} refused")
    figures += [word for word in (pace(status), standing(status)) if word]
    return printable(f"{status.name}: {status.health.word}: {status.health.reason} | {', '.join(figures)}").replace(
        "\n", " "
    )


def clock(happening: Happening) -> str:
    """Local time of day of an event."""
    try:
        return datetime.fromisoformat(happening.time).astimezone().strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""


SHOWN_AS = {"veto": "refused", "closed": "finished"}


def shown_event(happening: Happening) -> str:
    """The event in plain words."""
    return SHOWN_AS.get(happening.event, happening.event)


def spell_line(spell: Spell, name: str = "") -> str:
    """An event, with its repeats, in one line."""
    step = f"step{'s' if '-' in spell.steps else ''} {spell.steps}" if spell.steps else ""
    words = [clock(spell.first), name, step, f"{shown_event(spell.first)}{spell.times}"]
    return printable(" ".join(filter(None, words)) + f": {spell.first.text}").replace("\n", " ").rstrip(": ")
