"""Evaluations: their curves, figures, and whether the run overfits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from stayfinite.core.curve import Curve
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.runs.directory import number
from stayfinite.readers.runs.events import MOST_SIGNALS, SIGNAL

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
