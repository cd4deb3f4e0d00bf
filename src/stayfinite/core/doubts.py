"""What is remembered of unusual steps: the doubt about one, a trial of earlier weights, how often a run went back.

It is saved with the guard's memory; :func:`probation_from` reads it back. `probation` judges by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stayfinite.core.levels import Level

LATELY = 8
"""Steps for which an extraordinary update may show."""


class Blame(StrEnum):
    """What an unusual step is probably due to."""

    BATCH = "batch"
    """The data: it may be worth learning."""
    UPDATE = "update"
    """The weights: the update before it was extraordinary."""
    FAULT = "fault"
    """Data that nothing can be learned from: its loss is beyond anything plausible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """An unusual step that was taken, and what has followed."""

    step: int
    loss: float
    """Its own loss, which says nothing about harm."""
    loss_spike: bool
    blame: Blame
    usual: tuple[float, ...]
    """The losses before it."""
    rate: float | None
    """The highest learning rate before it."""
    bounded: float | None
    """What its gradient was allowed to be over the usual norm, where it was more; None where it was not."""
    followed: tuple[float, ...] = ()
    phase: bool = False
    """Whether it was told as a new phase."""
    hurt: bool = False
    """Whether the level was clearly higher at some time, even if it has come back."""
    asked: bool = False
    """Whether the earlier weights were asked, and need not be until something has changed."""

    @property
    def level(self) -> Level:
        """Of the losses before it."""
        return Level.of(self.usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The known-good state in place of the present one, for a few steps."""

    suspect: float
    """Where the losses lay before, on the scale of the doubt's window."""
    known_good: int
    """Step of the state that is in place."""
    losses: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probation:
    """What is remembered."""

    losses: tuple[float, ...] = ()
    """Of the last steps that were taken."""
    rates: tuple[float, ...] = ()
    since_odd_update: int = LATELY + 1
    """Steps since an extraordinary update, by its gradient or its learning rate."""
    doubt: Doubt | None = None
    trial: Trial | None = None
    factor: float | None = None
    """What a gradient may be over the usual norm; None for the policy's own factor."""
    ceiling: float = math.inf
    """What it may never be again: a multiple that did harm."""
    harmless: int = 0
    """Bounded steps that have done no harm since the factor last changed."""
    backs: tuple[tuple[int, int, Blame], ...] = ()
    """The last times that the run went back: at which step, to which, and what was to blame."""


def probation_from(plain: Mapping[str, Any]) -> Probation:
    """What ``dataclasses.asdict`` made of a probation, also after a trip through JSON.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    if not plain:
        return Probation()
    doubt, trial = plain["doubt"], plain["trial"]
    if doubt is not None:
        windows = {name: finite_numbers(doubt[name]) for name in ("usual", "followed")}
        doubt = Doubt(**{**doubt, **windows, "blame": Blame(doubt["blame"])})
    if trial is not None:
        trial = Trial(**{**trial, "losses": finite_numbers(trial["losses"])})
    return Probation(
        losses=finite_numbers(plain["losses"]),
        rates=finite_numbers(plain["rates"]),
        since_odd_update=int(plain["since_odd_update"]),
        doubt=doubt,
        trial=trial,
        factor=None if plain["factor"] is None else float(plain["factor"]),
        ceiling=float(plain["ceiling"]),
        harmless=int(plain["harmless"]),
        backs=tuple((int(at), int(to), Blame(blame)) for at, to, blame in plain["backs"]),
    )


def finite_numbers(values: Iterable[Any]) -> tuple[float, ...]:
    """The numbers of a window that was saved; ValueError where one is not finite."""
    # What was edited or damaged must not let a NaN in by the back door.
    numbers = tuple(map(float, values))
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a window holds NaN or inf")
    return numbers
