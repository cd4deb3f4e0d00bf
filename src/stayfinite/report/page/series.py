"""Curves, marks and alternative x axes for the page; evaluations, and whether the run overfits."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from stayfinite.core.curve import Curve, Span, Spans
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Point, RunSeries, Track
from stayfinite.readers.runs.directory import number
from stayfinite.readers.runs.events import MOST_SIGNALS, SIGNAL
from stayfinite.report.page.plain import short, text, whole

TIME = lazy_regex(
    r"(?i)^(.*/)?_?(elapsed|elapsed[_ ]time|time[_ ]elapsed|wall[_ ]?(clock|time)|runtime|total[_ ]time)(_s)?$"
)
TOKENS = lazy_regex(
    r"(?i)^(.*/)?((num|total|consumed|cumulative|seen)_)?(input_)?tokens(_(seen|so_far|consumed|total))?$"
)

MOST = 200
"""Points kept per axis, linearly interpolated between."""

Axes = dict[str, list[list[float | int]]]
"""[step, position] pairs per axis, both increasing."""


def run_axes(times: Iterable[tuple[float, float]], curves: Mapping[str, Curve]) -> Axes:
    """Axes of a guarded run, from its event times and signals."""
    signals = {name.removeprefix(SIGNAL): curve.points() for name, curve in curves.items() if name.startswith(SIGNAL)}
    axes = log_axes(signals)
    if found := _rising(times):
        axes["time"] = found
    return axes


def log_axes(metrics: Mapping[str, Iterable[tuple[float, float]]]) -> Axes:
    """Axes of a log, from nondecreasing metrics that count time or tokens."""
    axes: Axes = {}
    for axis, names in (("time", TIME), ("tokens", TOKENS)):
        for name, points in metrics.items():
            if names.search(name) and (found := _rising(points)):
                axes[axis] = found
                break
    return axes


def _rising(points: Iterable[tuple[float, float]]) -> list[list[float | int]]:
    """[step, position] pairs, each step once; empty if positions decrease or do not change."""
    places = dict(points)
    pairs: Sequence[tuple[float, float]] = sorted(places.items())
    if len(pairs) < 2 or any(later[1] < earlier[1] for earlier, later in pairwise(pairs)):
        return []
    if pairs[-1][1] <= pairs[0][1]:
        return []
    every = -(-len(pairs) // MOST)
    kept = [*pairs[:-1:every], pairs[-1]]
    return [[whole(step), short(place)] for step, place in kept]


LOSSES = ("eval_loss", "val_loss", "valid_loss", "validation_loss", "test_loss", "dev_loss")
"""Names drawn with the loss."""

EVALUATED = lazy_regex(
    r"(?i)^(eval|val|valid|validation|test|dev)[_/. -]|accuracy|\bacc|bleu|chrf|comet|rouge|\bf1|\b[wc]er\b"
    r"|perplexity|\bppl|\bauc|\bm?ap\b|\bm?iou|score|exact|pass@"
)
COSTS = lazy_regex(
    r"(?i)time|per_?(second|sec|step|s)\b|/s\b|/sec|flo[ps]|epoch|samples|throughput|speed|memory|\bmem|eta\b|_ms\b|"
    r"tokens"
)
"""Cost metrics, which say nothing about quality."""

COUNTS = ("step", "value", "rows")
"""Keys of an evaluation that are not scores of their own."""

ENOUGH, AFTER = 4, 2
"""Evaluations needed before overfitting is reported, and how many must follow the best."""
RISE = 1.05
"""Factor over the best loss that counts as a rise."""


def metric_names(found: Mapping[str, int]) -> list[str]:
    """Metrics that get their own row, evaluations first.

    Arguments:
        found: number of measurements by name.
    """
    named = [name for name, seen in found.items() if name not in LOSSES and seen > 1 and not COSTS.search(name)]
    return sorted(named, key=lambda name: not EVALUATED.search(name))[:MOST_SIGNALS]


def evaluation_curves(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Curves from evaluations.json."""
    curves: dict[str, Curve] = {}
    for entry in evaluations:
        step = number(entry.get("step"))
        for name, value in entry.items() if step is not None else ():
            told = number(value)
            if name in COUNTS or told is None or step is None or len(curves) >= MOST_SIGNALS:
                continue
            curves.setdefault("eval_loss" if name in ("loss", *LOSSES) else f"{SIGNAL}{name}", Curve()).add(step, told)
    return curves


def evaluation_figures(curves: Mapping[str, Curve], word: str = "step") -> list[list[str]]:
    """The best evaluated loss with its step, and the newest other scores."""
    figures = []
    for name in LOSSES:
        if points := curves[name].points() if name in curves else []:
            step, low = min(points, key=lambda point: point[1])
            figures.append([f"best {_spoken(name)}", f"{low:.4g} at {word} {step:,.0f}"])
    scores = [(name.removeprefix(SIGNAL), curve) for name, curve in curves.items() if name.startswith(SIGNAL)]
    told = [(name, curve.newest) for name, curve in scores if EVALUATED.search(name) and curve.newest is not None]
    return figures + [[f"last {_spoken(name)}", f"{value:.4g}"] for name, value in told[:4]]


def overfitting(curves: Mapping[str, Curve], word: str = "step") -> str:
    """A sentence if an evaluated loss rises while the training loss falls; otherwise empty."""
    loss = curves.get("loss")
    for name in LOSSES if loss is not None else ():
        points = curves[name].points() if name in curves else []
        if len(points) < ENOUGH:
            continue
        place = min(range(len(points)), key=lambda each: points[each][1])
        (step, low), last = points[place], points[-1][1]
        risen = len(points) - 1 - place >= AFTER and low > 0 and min(point[1] for point in points[-AFTER:]) > RISE * low
        if risen and loss is not None and _falls(loss.points(), step):
            rose = f"{_spoken(name)} rose from {low:.4g} to {last:.4g} while the training loss fell"
            return f"Overfitting since {word} {step:,.0f}: {rose}."
    return ""


def _falls(points: Sequence[tuple[float, float]], since: float) -> bool:
    """Whether the loss falls after a step, comparing medians of a tenth of the points there and at the end."""
    reach = max(1, len(points) // 20)
    place = next((each for each, (step, _) in enumerate(points) if step >= since), len(points))
    around = [value for _, value in points[max(0, place - reach) : place + reach]]
    end = [value for _, value in points[-2 * reach :]]
    return bool(around) and median(end) < 0.98 * median(around)


def _spoken(name: str) -> str:
    return {"bleu": "BLEU", "chrf": "chrF++"}.get(name, name.replace("_", " ").replace("/", " "))


def once(pairs: Iterator[tuple[float, float]]) -> list[tuple[float, float]]:
    """Drop points that a resumed run measured again, so that steps only increase.

    Steps that restart at the very first one are a new count rather than a resume, and stay.
    """
    kept: list[tuple[float, float]] = []
    for step, value in pairs:
        if kept and kept[0][0] < step < kept[-1][0]:
            while kept and kept[-1][0] >= step:
                kept.pop()
        kept.append((step, value))
    return kept


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
        curves[name if name in LOSSES else f"{SIGNAL}{name}"] = _curve(_placed(track, steps, lines))
    return {name: curve for name, curve in curves.items() if curve.seen}


def axes_of(series: RunSeries) -> Axes:
    """Alternative x axes of a log."""
    steps, lines = _steps(series), [point.line for point in series.points]
    return log_axes(
        {
            name: [(step, value) for step, value in _placed(track, steps, lines) if math.isfinite(value)]
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


def _placed(track: Track, steps: Sequence[float], lines: Sequence[int]) -> Iterator[tuple[float, float]]:
    """A metric's steps and values. A value without a step belongs to the last step logged before its line."""
    for place, (step, value, line) in enumerate(zip(track.steps, track.values, track.lines, strict=True)):
        before = steps[max(0, bisect_right(lines, line) - 1)] if steps else float(place)
        yield before if step is None else step, value


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
