"""Curves and marks of a run as the page draws them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stayfinite.core.curve import Curve, Span, Spans
from stayfinite.core.series import Point, RunSeries
from stayfinite.readers.runs.steps import SIGNAL
from stayfinite.report.page.axes import TIME, TOKENS, Axes, log_axes
from stayfinite.report.page.evaluated import LOSSES, metric_names, once
from stayfinite.report.page.plain import short, text, whole


def series_data(curves: Mapping[str, Curve]) -> dict[str, Any]:
    """Each curve as its points and the spans in which it is not finite."""
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
    """What happened, in the order of the steps."""
    return sorted((mark_data(span) for spans in marks.values() for span in spans), key=lambda mark: mark["from"])


def mark_data(span: Span) -> dict[str, Any]:
    """One mark, or several of a kind."""
    return {
        "kind": span.kind,
        "from": whole(span.first),
        "to": whole(span.last),
        "count": span.count,
        "text": text(span.text),
    }


def curves_of(series: RunSeries) -> dict[str, Curve]:
    """The curves of a log that is somebody else's."""
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
        # An evaluation that names no step was made after the last one that was measured before it.
        curves[name if name in LOSSES else f"{SIGNAL}{name}"] = _curve(
            (_before(steps, lines, line, place) if step is None else step, value)
            for place, (step, value, line) in enumerate(told)
        )
    return {name: curve for name, curve in curves.items() if curve.seen}


def axes_of(series: RunSeries) -> Axes:
    """What a log can be drawn over besides its steps."""
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
    """Of each point; one that names none among others that do belongs to the one before it."""
    named = [point.step for point in series.points]
    if all(step is None for step in named):
        return [ordinal for ordinal, _, _ in series.column("line")]
    last = next(step for step in named if step is not None)
    return [last := last if step is None else step for step in named]


def _loss(point: Point) -> float | None:
    """The loss; NaN for the 0 that stands for it. transformers' Trainer filters NaN out of the mean that it logs."""
    hidden = point.loss == 0 and point.grad_norm is not None and not math.isfinite(point.grad_norm)
    return math.nan if hidden else point.loss


def _before(steps: Sequence[float], lines: Sequence[int], line: int, place: int) -> float:
    """The step that was measured last before a line; that place in a row where nothing was."""
    found = bisect_right(lines, line)
    return steps[max(0, found - 1)] if steps else float(place)


def repeated(series: RunSeries) -> int:
    """Measurements of steps that were taken again after the run was resumed."""
    steps = [step for step in _steps(series) if math.isfinite(step)]
    return len(steps) - len(once((step, 0.0) for step in steps))


def skips_of(series: RunSeries) -> Spans:
    """Steps that a log says were left out."""
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
