"""Curves and marks of a run as the page draws them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from stayfinite.core.curve import Curve, Span, Spans
from stayfinite.core.series import RunSeries
from stayfinite.report.page.plain import short, text, whole

EVALUATED = ("eval_loss", "val_loss", "valid_loss", "validation_loss", "test_loss")
"""Drawn beside the loss."""


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
    curves = {}
    for name in ("loss", "grad_norm", "lr", "loss_scale"):
        curves[name] = _curve((step, value) for step, value, _ in series.column(name))
    for name in EVALUATED:
        track = series.metrics.get(name)
        if track is not None:
            told = zip(track.steps, track.values, strict=True)
            curves[name] = _curve((float(place) if step is None else step, v) for place, (step, v) in enumerate(told))
    return {name: curve for name, curve in curves.items() if curve.seen}


def skips_of(series: RunSeries) -> Spans:
    """Steps that a log says were left out."""
    spans = Spans()
    for ordinal, point in enumerate(series.points):
        if point.skipped and point.step is not None and math.isfinite(point.step):
            spans.add("skip", point.step, text="the log says that this step was skipped", ordinal=ordinal)
    return spans


def _curve(pairs: Iterable[tuple[float, float]]) -> Curve:
    curve = Curve()
    for step, value in pairs:
        if math.isfinite(step):
            curve.add(step, value)
    return curve
