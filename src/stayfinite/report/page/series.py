"""Curves and marks for the page."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stayfinite.core.curve import Curve, Span, Spans
from stayfinite.core.series import Point, RunSeries
from stayfinite.readers.runs.events import SIGNAL
from stayfinite.report.page.axes import TIME, TOKENS, Axes, log_axes
from stayfinite.report.page.evaluated import LOSSES, metric_names, once
from stayfinite.report.page.plain import short, text, whole


def series_data(curves: Mapping[str, Curve]) -> dict[str, Any]:
    """Each curve as points and non-finite spans."""
    return {text(name, 80): curve_data(curve) for name, curve in curves.items() if curve.seen}


def curve_data(curve: Curve) -> dict[str, Any]:
    """One curve."""
    points = curve.points()
    return {
        "x": [whole(step) for step, _ in points],
        "y": [short(value) for _, value in points],
        "bad": [[whole(span.first), whole(span.last), span.count, span.kind] for span in curve.bad],
    }


def marks_data(marks: Mapping[str, Spans]) -> list[dict[str, Any]]:
    """Marks in step order."""
    return sorted((mark_data(span) for spans in marks.values() for span in spans), key=lambda mark: mark["from"])


def mark_data(span: Span) -> dict[str, Any]:
    """One mark, which may span several events of a kind."""
    return {
        "kind": span.kind,
        "from": whole(span.first),
        "to": whole(span.last),
        "count": span.count,
        "text": text(span.text),
    }


def curves_of(series: RunSeries) -> dict[str, Curve]:
    """Curves of a foreign log."""
    points = list(series.points)
    steps = _steps(series)
    curves = {"loss": _curve((step, _loss(point)) for step, point in zip(steps, points, strict=True))}
    for name in ("grad_norm", "lr", "loss_scale"):
        curves[name] = _curve((step, getattr(point, name)) for step, point in zip(steps, points, strict=True))
    lines = [point.line for point in points]
    names = metric_names({name: track.seen for name, track in series.metrics.items()})
    for name in (*(name for name in LOSSES if name in series.metrics), *names):
        track = series.metrics[name]
        told = zip(track.steps, track.values, track.lines, strict=True)
        # An evaluation without a step belongs to the last step logged before it.
        curves[name if name in LOSSES else f"{SIGNAL}{name}"] = _curve(
            (_before(steps, lines, line, place) if step is None else step, value)
            for place, (step, value, line) in enumerate(told)
        )
    return {name: curve for name, curve in curves.items() if curve.seen}


def axes_of(series: RunSeries) -> Axes:
    """Alternative x axes of a log."""
    steps, lines = _steps(series), [point.line for point in series.points]
    return log_axes(
        {
            name: [
                (_before(steps, lines, line, place) if step is None else step, value)
                for place, (step, value, line) in enumerate(zip(track.steps, track.values, track.lines, strict=True))
                if math.isfinite(value)
            ]
            for name, track in series.metrics.items()
            if TIME.search(name) or TOKENS.search(name)
        }
    )


def _steps(series: RunSeries) -> list[float]:
    """Step of each point; a point without one gets the step before it."""
    named = [point.step for point in series.points]
    if all(step is None for step in named):
        return [ordinal for ordinal, _, _ in series.column("line")]
    last = next(step for step in named if step is not None)
    return [last := last if step is None else step for step in named]


def _loss(point: Point) -> float | None:
    """The loss, or NaN if it is 0 at a non-finite gradient norm: transformers' Trainer filters NaN out of its logged
    mean.
    """
    hidden = point.loss == 0 and point.grad_norm is not None and not math.isfinite(point.grad_norm)
    return math.nan if hidden else point.loss


def _before(steps: Sequence[float], lines: Sequence[int], line: int, place: int) -> float:
    """The last step logged before a line; ``place`` if there is none."""
    found = bisect_right(lines, line)
    return steps[max(0, found - 1)] if steps else float(place)


def repeated(series: RunSeries) -> int:
    """Measurements repeated after a resume."""
    steps = [step for step in _steps(series) if math.isfinite(step)]
    return len(steps) - len(once((step, 0.0) for step in steps))


def skips_of(series: RunSeries) -> Spans:
    """Steps the log reports as skipped."""
    spans = Spans()
    for ordinal, point in enumerate(series.points):
        if point.skipped and point.step is not None and math.isfinite(point.step):
            spans.add("skip", point.step, text="the log says this step was skipped", ordinal=ordinal)
    return spans


def _curve(pairs: Iterable[tuple[float, float | None]]) -> Curve:
    curve = Curve()
    for step, value in once((step, value) for step, value in pairs if value is not None and math.isfinite(step)):
        curve.add(step, value)
    return curve
