"""The numbers of a run by kind, as its symptoms are read from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message, Point, RunSeries
from stayfinite.rules.number_shapes import finite_of
from stayfinite.rules.signs.nan_words import says_not_finite
from stayfinite.rules.skipped_steps import of_steps_taken

_SUMMARY = ("train_loss", "training_loss")
EVALUATION = lazy_regex(r"^(?!.*(?:best|min|lowest)).*(?:eval|val|valid|dev|test)\w*[_/ ]?loss")
"""Evaluation losses; the best one so far is infinite before the first."""
ENOUGH_SCALE = 1024.0
"""A loss scale at which gradients fit fp16."""
ROUNDED = 8
"""Metrics from which it can be told that a log prints few digits of everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The numbers of a run by kind."""

    run: RunSeries
    everything: list[Point]
    points: list[Point]
    """Points with a loss or a gradient norm."""
    first_bad: Point | None
    good_before: int
    """Points before the first bad one; all if none is bad."""
    losses: list[float]
    norms: list[float]
    rates: list[float]
    """Finite learning rates."""
    scales: list[float]
    """Finite loss scales."""
    skips: list[Point]
    evaluations: list[tuple[float, int]]
    """Evaluation losses with their lines."""
    summary: list[tuple[float, int]]
    """Losses of a final summary with their lines."""
    stated: Message | None
    """A line that says in words that the loss is not finite."""


def measured(run: RunSeries) -> Measured:
    """Sort the numbers of a run."""
    everything = _without_pauses(_without_means(list(run.points)))
    points = [point for point in everything if point.loss is not None or point.grad_norm is not None]
    good_before = next((index for index, point in enumerate(points) if point.bad), len(points))
    return Measured(
        run=run,
        everything=everything,
        points=points,
        first_bad=points[good_before] if good_before < len(points) else None,
        good_before=good_before,
        losses=[point.loss for point in points if point.loss is not None],
        norms=[point.grad_norm for point in points if point.grad_norm is not None],
        rates=_rates(run, everything),
        scales=finite_of([point.loss_scale for point in everything if point.loss_scale is not None]),
        skips=[point for point in everything if point.skipped],
        evaluations=_values_of(run, [name for name in run.metrics if EVALUATION.search(name)]),
        summary=_values_of(run, [name for name in _SUMMARY if name in run.metrics]),
        stated=next((m for m in of_steps_taken(run) if says_not_finite(m.text, of_loss=True)), None),
    )


def _without_means(points: list[Point]) -> list[Point]:
    """Leave out infinite gradient norms beside a loss scale that does not fall: means that include skipped steps.

    A scaler that meets an infinite gradient at every step halves its scale at every step.
    """
    losses = [point.loss for point in points if point.loss is not None]
    scales = [point.loss_scale for point in points if point.loss_scale is not None]
    kept = len(scales) > 1 and scales[-1] >= max(scales[0] / 2, ENOUGH_SCALE)
    if not kept or not losses or not all(map(math.isfinite, losses)) or losses[-1] >= losses[0]:
        return points
    return [point._replace(grad_norm=None) if point.bad and point.loss_scale is not None else point for point in points]


def _without_pauses(points: list[Point]) -> list[Point]:
    """Leave out an infinite gradient norm at which the schedule paused: a loss scaler has skipped that one step."""
    kept = list(points)
    for at in range(1, len(points) - 1):
        before, point, after = points[at - 1 : at + 2]
        if not point.bad or before.bad or after.bad or (point.loss is not None and not math.isfinite(point.loss)):
            continue
        if point.lr is not None and before.lr == point.lr and after.lr not in (None, point.lr):
            kept[at] = point._replace(grad_norm=None)
    return kept


def _values_of(run: RunSeries, names: Sequence[str]) -> list[tuple[float, int]]:
    """The values of these metrics with their lines."""
    tracks = [run.metrics[name] for name in names]
    return [pair for track in tracks for pair in zip(track.values, track.lines, strict=True)]


def _rates(run: RunSeries, points: Sequence[Point]) -> list[float]:
    """The learning rates; [] if everything is printed with three decimals, so that 1e-6 shows as 0.000."""
    rates = finite_of([point.lr for point in points if point.lr is not None])
    if any(rates) or len(run.metrics) < ROUNDED:
        return rates
    values = finite_of([value for track in run.metrics.values() for value in track.values])
    return rates if any(round(value, 3) != value for value in values) else []
