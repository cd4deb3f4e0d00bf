"""Live curves in one notebook cell while training. Off until `%load_ext stayfinite`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from stayfinite.core.curve import Curve
from stayfinite.core.decision import Decision
from stayfinite.core.html import curve, panel

EVERY = 1.0
"""Seconds between drawings."""

SHARE = 100
"""Pause after a drawing, as a multiple of its duration: at most one percent of the time."""

MOST_MARKS = 60

Draw = Callable[[str], None]
"""Replaces the HTML shown before."""


class Switch:
    """Whether guards draw while training, and how to create a place to draw in."""

    place: Callable[[], Draw] | None = None


def live_curves() -> LiveCurves | None:
    """Live curves for the next run; None while off."""
    return None if Switch.place is None else LiveCurves(Switch.place)


class LiveCurves:
    """Curves of one guard. Errors here never reach the training."""

    def __init__(self, place: Callable[[], Draw]) -> None:
        self._place = place
        self._draw: Draw | None = None
        self._loss, self._norm = Curve(most=150), Curve(most=150)
        self._refused: deque[int] = deque(maxlen=MOST_MARKS)
        self._steps, self._count = 0, 0
        self._next = 0.0

    def take(self, decision: Decision) -> None:
        """Add a decided step; draw if it is time."""
        signals = decision.signals
        self._loss.add(signals.step, signals.loss)
        self._norm.add(signals.step, signals.grad_norm)
        self._steps += 1
        if decision.refused:
            self._count += 1
            self._refused.append(signals.step)
        if time.monotonic() >= self._next:
            self._show("training")

    def finish(self) -> None:
        """Draw the last picture."""
        if self._steps:
            self._show("ended")

    def _show(self, state: str) -> None:
        if Switch.place is None:
            return  # switched off meanwhile
        begun = time.monotonic()
        with suppress(Exception):  # a closed notebook must not end a training
            if self._draw is None:
                self._draw = self._place()
            self._draw(
                curves_html(state, self._steps, self._count, self._loss.points(), self._norm.points(), self._refused)
            )
        ended = time.monotonic()
        self._next = ended + max(EVERY, SHARE * (ended - begun))


def curves_html(
    state: str,
    steps: int,
    refused: int,
    loss: Sequence[tuple[float, float]],
    norm: Sequence[tuple[float, float]],
    marks: Sequence[float],
) -> str:
    """Loss and gradient norm side by side, with refused steps as red ticks."""
    title = f"stayfinite: {state}, {steps:,} step{'s' * (steps != 1)}, {refused:,} refused"
    parts = [f"<div>{curve('loss', loss, marks)}{curve('grad norm', norm, marks)}</div>"]
    return panel(title, tone="warning" if refused else "good", parts=parts)
