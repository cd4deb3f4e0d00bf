"""The outcomes of the campaign as tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

COUNTED = ("bound", "new-phase", "rollback")
LABELS = {
    "none": "no guard",
    "clip": "clip 1.0",
    "olmo": "OLMo-core's rule",
    "refuse": "refuse_spikes",
    "guard": "default",
    "forward": "default, forward known",
}


def healthy_table(results: Sequence[Any]) -> Iterator[str]:
    """What became of healthy trainings: a row for each metric."""
    counted = ("same bits", "refused", "bounded", "phases", "rollbacks")
    columns = ("healthy training", "metric", "no guard", "default", "change", "forward known", "change", *counted)
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for name in _names(results, harmful=False):
        runs = [each for each in results if each.job.training == name]
        for place, metric in enumerate(runs[0].metrics):
            none, guard, forward = (_values(runs, arm, metric) for arm in ("none", "guard", "forward"))
            counts = "| | | | " if place else _counts(runs)
            same = sum(a == b for a, b in zip(none, guard, strict=True))
            first = f"| {'' if place else name} | {metric} | {_spread(none)}"
            arms = (f"{statistics.mean(values):.4g} | {_change(none, values)}" for values in (guard, forward))
            yield f"{first} | {' | '.join(arms)} | {same} of {len(none)} {counts}|"


def totals(results: Sequence[Any]) -> Iterator[str]:
    """The promises, added up over all healthy trainings."""
    for arm in ("guard", "forward"):
        runs = [each for each in results if not each.job.harmful and each.job.arm == arm]
        if not runs:
            return
        steps, refused = (sum(each.counts[what] for each in runs) for what in ("steps", "refused"))
        bounded, backs = (sum(each.counts[what] for each in runs) for what in ("bound", "rollback"))
        worse = [
            f"{name} ({metric})"
            for name in _names(results, harmful=False)
            for metric in next(each for each in results if each.job.training == name).metrics
            if worsens(results, name, metric, arm)
        ]
        yield (
            f"{LABELS[arm]}: {refused:,} of {steps:,} healthy steps refused ({refused / steps:.3%}), "
            f"{bounded:,} bounded ({bounded / steps:.2%}), {backs} rollbacks; "
            f"worse beyond the seeds' own spread: {', '.join(worse) or 'none'}."
        )


def harmful_table(results: Sequence[Any]) -> Iterator[str]:
    """What became of harmful ones: medians over the seeds, with the worst."""
    arms = tuple(LABELS)
    yield f"| harmful training | {' | '.join(LABELS.values())} |"
    yield f"|---{'|---' * len(arms)}|"
    for name in _names(results, harmful=True):
        runs = [each for each in results if each.job.training == name]
        metric = next(iter(runs[0].metrics))
        cells = (_middle(_values(runs, arm, metric)) for arm in arms)
        yield f"| {name} | {' | '.join(cells)} |"


def worsens(results: Sequence[Any], name: str, metric: str, arm: str) -> bool:
    """Whether a metric is worse by more than the spread between seeds without a guard, in the mean of the pairs."""
    runs = [each for each in results if each.job.training == name]
    none, other = _values(runs, "none", metric), _values(runs, arm, metric)
    return _in_spreads(none, other) > 1.0


def _names(results: Sequence[Any], *, harmful: bool) -> list[str]:
    return list(dict.fromkeys(each.job.training for each in results if each.job.harmful is harmful))


def _values(runs: Sequence[Any], arm: str, metric: str) -> list[float]:
    found = sorted((each.job.seed, each.metrics[metric]) for each in runs if each.job.arm == arm)
    return [value for _, value in found]


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.4g} ± {statistics.stdev(values) if len(values) > 1 else 0:.2g}"


def _in_spreads(none: list[float], other: list[float]) -> float:
    difference = statistics.mean(b - a for a, b in zip(none, other, strict=True))
    spread = statistics.stdev(none) if len(none) > 1 else math.inf
    # A metric next to nothing (a regression solved to 1e-11) has no spread worth the name.
    least = 1e-3 * max(abs(statistics.mean(none)), 1e-6)
    return difference / max(spread, least)


def _change(none: list[float], other: list[float]) -> str:
    return f"{_in_spreads(none, other):+.2f}"


def _counts(runs: Sequence[Any]) -> str:
    guarded = [each for each in runs if each.job.arm == "guard"]
    steps = sum(each.counts["steps"] for each in guarded)
    refused = sum(each.counts["refused"] for each in guarded)
    shares = [f"{refused} of {steps:,}"]
    shares += [str(sum(each.counts[what] for each in guarded)) for what in COUNTED]
    return f"| {' | '.join(shares)} "


def _middle(values: list[float]) -> str:
    if not values:
        return ""
    ranked = sorted(values, key=lambda value: (not math.isfinite(value), value))
    return f"{ranked[len(ranked) // 2]:.4g} ({ranked[-1]:.4g})"
