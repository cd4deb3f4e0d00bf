"""The numbers of a run by kind, as its symptoms are read from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message, Point, RunSeries
from stayfinite.rules.number_shapes import STANDS_AT_CHANCE, digits, finite_of, zeros_in
from stayfinite.rules.signs.nan_words import says_not_finite
from stayfinite.rules.skipped_steps import of_steps_taken

_SUMMARY = ("train_loss", "training_loss")
EVALUATION = lazy_regex(r"^(?!.*(?:best|min|lowest)).*(?:eval|val|valid|dev|test)\w*[_/ ]?loss")
"""Evaluation losses; the best one so far is infinite before the first."""
LATE_STEP, LATE_EPOCH = 100, 0.5
"""A first bad point after these had good ones before it, logged or not."""
REAL_LOSS = 1e-3
"""An average above this has steps in it that were neither NaN nor 0."""
ENOUGH_SCALE = 1024.0
"""A loss scale at which gradients fit fp16."""
ROUNDED = 8
"""Metrics from which it can be told that a log prints few digits of everything."""
_CLASSES_TOLD = lazy_regex(
    r"\b(?:(\d{1,5}) (?:classes|actions|labels|categories|moves|words|tokens|letters|symbols)|"
    r"(?:n(?:um)?_?(?:classes|labels|actions)|vocab_size|out_features)\W{1,3}(\d{1,6}))\b"
)


def at_told_chance(runs: Sequence[RunSeries], notes: Sequence[tuple[str, str]]) -> int | None:
    """The number of classes that somebody names, where a loss is its logarithm to the last digit throughout."""
    told = {int(found[1] or found[2]) for _, text in notes for found in _CLASSES_TOLD.finditer(text)}
    losses = [
        track.values for run in runs for name, track in run.metrics.items() if name.endswith(("loss", "ce", "nll"))
    ]
    for values in losses:
        if len(values) < 2 or min(map(digits, values)) < STANDS_AT_CHANCE:
            continue
        for classes in told:
            if classes > 1 and all(abs(value - math.log(classes)) < 1e-4 for value in values):
                return classes
    return None


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
    late_start: str
    """What shows that steps before the first bad or zero point were fine, though none is logged; else empty."""


def measured(run: RunSeries) -> Measured:
    """Sort the numbers of a run."""
    everything = _without_pauses(_without_means(list(run.points)))
    points = [point for point in everything if point.loss is not None or point.grad_norm is not None]
    good_before = next((index for index, point in enumerate(points) if point.bad), len(points))
    first_bad = points[good_before] if good_before < len(points) else None
    summary = _values_of(run, [name for name in _SUMMARY if name in run.metrics])
    return Measured(
        run=run,
        everything=everything,
        points=points,
        first_bad=first_bad,
        good_before=good_before,
        losses=[point.loss for point in points if point.loss is not None],
        norms=[point.grad_norm for point in points if point.grad_norm is not None],
        rates=_rates(run, everything),
        scales=finite_of([point.loss_scale for point in everything if point.loss_scale is not None]),
        skips=[point for point in everything if point.skipped],
        evaluations=_values_of(run, [name for name in run.metrics if EVALUATION.search(name)]),
        summary=summary,
        stated=next((m for m in of_steps_taken(run) if says_not_finite(m.text, of_loss=True)), None),
        late_start=_late_start(run, first_bad, summary),
    )


def _late_start(run: RunSeries, first_bad: Point | None, summary: Sequence[tuple[float, int]]) -> str:
    # An average over the whole run stands at its end, and says nothing of when.
    if first_bad is not None and first_bad.line not in (line for _, line in summary[:1]):
        step, epoch = first_bad.step, first_bad.epoch
        if step is not None and math.isfinite(step) and step > LATE_STEP and not _first_of_its_kind(run, first_bad):
            return f"it appears at step {step:.0f}, not at the start"
        # Epochs start at 0 or 1: an integer 1 may be the first.
        if epoch is not None and math.isfinite(epoch) and epoch >= LATE_EPOCH and epoch != 1:
            return f"it appears at epoch {epoch:g}, not at the start"
    averages = [value for value, _ in summary if math.isfinite(value) and value > REAL_LOSS]
    zero = zeros_in([point.loss for point in run.points if point.loss is not None])
    if averages and (first_bad is not None or zero):
        return f"the average loss of the run is {averages[-1]:.4g}, so most steps were finite"
    return ""


def _first_of_its_kind(run: RunSeries, first: Point) -> bool:
    """Whether lines come every so many steps and this one is the first: nothing is known of the steps before."""
    if first.epoch == 1 and run.kind == "keras":
        return True  # older Keras counts rows, not steps
    steps = [point.step for point in islice(run.points, 8) if point.loss is not None and point.step is not None]
    return len(steps) >= 2 and steps[0] == first.step and steps[1] == 2 * steps[0]


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
