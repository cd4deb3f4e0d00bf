"""Where in a log a trouble began, which may be long before it is noticed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Point, RunSeries
from stayfinite.rules.measured import EVALUATION

RISEN = 1.5
"""A loss that diverges began to where it left its lowest behind by this factor."""

_DATED = lazy_regex(r" from step ([\d,]+)")


def onset_of(kind: str, word: str, runs: Sequence[RunSeries]) -> int | None:
    """The step at which a trouble began; None where the log does not say.

    Arguments:
        kind: the trouble without its date.
        word: the trouble as told.
        runs: of the log.
    """
    if (dated := _DATED.search(word)) is not None:
        return int(dated[1].replace(",", ""))
    run = max(runs, key=lambda each: each.points_seen, default=None)
    step = None if run is None else _first(kind, run)
    return int(step) if step is not None and math.isfinite(step) else None


def _first(kind: str, run: RunSeries) -> float | None:
    if kind == "the evaluation loss is NaN or inf":
        return _first_lost_evaluation(run)
    if kind in ("the loss explodes", "the loss diverges"):
        return _left_behind(run)
    holds = _HOLDS.get(kind)
    return None if holds is None else next((point.step for point in run.points if holds(point)), None)


def _lost(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


_HOLDS: dict[str, Callable[[Point], bool]] = {
    "the loss is NaN or inf": lambda point: _lost(point.loss),
    "the gradient norm is NaN or inf": lambda point: _lost(point.grad_norm),
    "the loss is 0": lambda point: point.loss == 0,
    "the gradient is 0": lambda point: point.grad_norm == 0,
    "the learning rate is 0": lambda point: point.lr == 0,
}


def _first_lost_evaluation(run: RunSeries) -> float | None:
    rows = [
        (step, value)
        for name, track in run.metrics.items()
        if EVALUATION.search(name)
        for step, value in zip(track.steps, track.values, strict=True)
    ]
    return min((step for step, value in rows if step is not None and not math.isfinite(value)), default=None)


def _left_behind(run: RunSeries) -> float | None:
    """The step from which the loss was never near its lowest again."""
    losses = [(point.step, point.loss) for point in run.points if point.loss is not None]
    finite = [loss for _, loss in losses if math.isfinite(loss)]
    limit = RISEN * min(finite, default=math.inf)
    began: float | None = None
    for step, loss in reversed(losses):
        if loss <= limit:
            break
        began = step
    return began
