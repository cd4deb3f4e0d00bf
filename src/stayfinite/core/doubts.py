"""State of the probation: doubts about unusual steps, trials of earlier weights, past returns.

Saved with the guard's memory and judged in `probation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from stayfinite.core.spikes import MAD_TO_SIGMA, spread

SPAN = 8
"""Losses in the median."""

LEAST_SIGMA = 0.04
"""Minimum spread of a window on its scale, about 5 % of the loss."""

HIGH, LOW = 3.0, 6.0
"""Robust deviations of single losses at which the median of ``SPAN`` has left the window, up and down."""


@dataclass(frozen=True, slots=True)
class Level:
    """Summary of a window of losses, on an asinh scale: linear near 0, logarithmic above."""

    unit: float
    """Linear range of the scale: the size of the losses, or their spread if they are near 0."""

    middle: float
    sigma: float

    @classmethod
    def of(cls, losses: Sequence[float]) -> Level:
        """Level of a window of finite losses."""
        middle, deviation = spread(losses)
        unit = max(abs(middle), MAD_TO_SIGMA * deviation, 1e-30)
        scaled = [math.asinh(loss / unit) for loss in losses]
        middle, deviation = spread(scaled)
        return cls(unit, middle, max(MAD_TO_SIGMA * deviation, LEAST_SIGMA))

    def place(self, losses: Sequence[float]) -> float:
        """Median of these losses on the window's scale."""
        return math.asinh(median(losses) / self.unit)

    def loss_at(self, place: float) -> float:
        """Loss at a place on the scale."""
        return math.sinh(min(place, 700.0)) * self.unit

    @property
    def high(self) -> float:
        """Threshold above which the level has risen."""
        return self.middle + HIGH * self.sigma

    @property
    def low(self) -> float:
        """Threshold below which the level has fallen."""
        return self.middle - LOW * self.sigma


LATELY = 8
"""Steps during which an extraordinary update may show an effect."""


class Blame(StrEnum):
    """Likely cause of an unusual step."""

    BATCH = "batch"
    """The data; it may be worth learning."""
    UPDATE = "update"
    """The weights; the update before it was extraordinary."""
    FAULT = "fault"
    """Data that cannot be learned from: its loss is implausible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """An unusual step that was taken, and the losses after it."""

    step: int
    loss: float
    """Loss of the step itself; it does not show harm."""
    loss_spike: bool
    blame: Blame
    usual: tuple[float, ...]
    """Losses before the step."""
    rate: float | None
    """Highest learning rate before the step."""
    bounded: float | None
    """Allowed multiple of the usual norm if the gradient was above it, else None."""
    followed: tuple[float, ...] = ()
    phase: bool = False
    """Whether it was reported as a new phase."""
    hurt: bool = False
    """Whether the level was clearly higher at some point, even if it recovered."""
    asked: bool = False
    """Whether the earlier weights were tried; no need to repeat it until something changes."""

    @property
    def level(self) -> Level:
        """Level of the losses before the step."""
        return Level.of(self.usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The known-good state, in place of the current one for a few steps."""

    suspect: float
    """Level of the losses before the trial, on the scale of the doubt's window."""
    known_good: int
    """Step of the known-good state."""
    losses: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probation:
    """Memory of the probation between steps."""

    losses: tuple[float, ...] = ()
    """Losses of the last accepted steps."""
    rates: tuple[float, ...] = ()
    since_odd_update: int = LATELY + 1
    """Steps since an update with an extraordinary gradient or learning rate."""
    doubt: Doubt | None = None
    trial: Trial | None = None
    factor: float | None = None
    """Allowed multiple of the usual gradient norm; None for the policy's own factor."""
    ceiling: float = math.inf
    """Multiple that did harm; the factor stays below it."""
    harmless: int = 0
    """Bounded steps without harm since the factor last changed."""
    backs: tuple[tuple[int, int, Blame], ...] = ()
    """Recent returns: at which step, to which step, and the cause."""
