"""Refused steps in words: how many, why, and what did not help."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stayfinite.core.decision import Action, Code
from stayfinite.core.signals import Signals

NAN_LOSS, INFINITE_LOSS = "nan-loss", "infinite-loss"

REASONS: dict[str, str] = {
    NAN_LOSS: "a NaN loss",
    INFINITE_LOSS: "an infinite loss",
    Code.LOSS_NOT_FINITE: "a NaN or infinite loss",
    Code.GRADIENT_NOT_FINITE: "NaN or inf gradients",
    Code.LOSS_SPIKE: "a loss spike",
    Code.GRADIENT_SPIKE: "a gradient spike",
    Code.REPLAY_MISMATCH: "a re-run that differs",
}

RUNGS = {
    Action.CUT: "cutting the learning rate",
    Action.ROLLBACK: "rolling back",
    Action.ESCALATE: "raising the precision",
}


@dataclass(frozen=True, slots=True)
class Row:
    """Refused steps since the last accepted one; overflows of a scale search do not count."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    """Refused steps by reason."""

    rungs: tuple[tuple[str, int], ...] = ()
    """Rungs taken meanwhile, each with the number of steps refused by then."""

    @property
    def count(self) -> int:
        return sum(self.reasons.values())


NO_ROW = Row()


def refused_again(row: Row, signals: Signals, code: Code) -> Row:
    """The row with one more refused step."""
    reason: str = code
    if code is Code.LOSS_NOT_FINITE:
        reason = NAN_LOSS if math.isnan(signals.loss) else INFINITE_LOSS
    return replace(row, reasons={**row.reasons, reason: row.reasons.get(reason, 0) + 1})


def rung_taken(row: Row, rung: Action) -> Row:
    """The row with a rung taken now."""
    return replace(row, rungs=(*row.rungs, (rung.value, row.count)))


def row_in_words(row: Row, taken: Mapping[Action, int]) -> str:
    """A row of refused steps.

    Arguments:
        taken: rungs of the whole run.
    """
    words = f"{_steps(row.count, ' in a row')} refused, {_why(row.reasons)}"
    if row.rungs:
        tried = [f"{RUNGS[Action(rung)]} after {count}" for rung, count in row.rungs]
        words += f"; {' and '.join(tried)} did not help"
    names = [rung for rung, _ in row.rungs]
    earlier = {rung: count - names.count(rung) for rung, count in taken.items()}
    return words + _counted("; earlier in the run: ", earlier)


def total_in_words(refused: Mapping[str, int], held: int, taken: Mapping[Action, int]) -> str:
    """All refused steps of a run.

    Arguments:
        refused: refused steps by code.
        held: those of them that accepted steps have not earned back.
        taken: rungs of the whole run.
    """
    reasons = {code: count for code, count in refused.items() if code != Code.SCALE_SEARCH}
    count = sum(reasons.values())
    back = f", {count - held:,} of them earned back" if count > held else ""
    return f"{_steps(count, ' in all')} refused{back}, {_why(reasons)}{_counted('; tried: ', taken)}"


def _steps(count: int, how: str) -> str:
    return "1 step was" if count == 1 else f"{count:,} steps{how} were"


def _why(reasons: Mapping[str, int]) -> str:
    if len(reasons) == 1:
        ((reason, count),) = reasons.items()
        return f"{'all ' if count > 1 else ''}with {REASONS.get(reason, reason)}"
    return ", ".join(f"{count:,} with {REASONS.get(reason, reason)}" for reason, count in reasons.items())


def _counted(start: str, taken: Mapping[Action, int]) -> str:
    words = ", ".join(f"{count} x {rung}" for rung, count in taken.items() if count > 0)
    return start + words if words else ""
