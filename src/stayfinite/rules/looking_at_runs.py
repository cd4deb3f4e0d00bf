"""Reading the symptoms of a run from its series, as a person would read them from the log."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stayfinite.core.series import Message, Point, RunSeries
from stayfinite.rules.number_shapes import (
    SMALL_LOSS,
    diverges,
    finite_of,
    growth,
    is_absurd,
    is_flat,
    is_range_test,
    trailing_zeros,
    zero_was_earned,
    zeros_in,
)
from stayfinite.rules.symptoms import TINY_LOSS, Symptoms

WENT_ON = 10
"""So many measurements after a crash, and it was not the end."""

ABSURD_PERPLEXITY = 1e12
"""exp of a loss of 28 and more: worse than guessing among all words of any language."""

_CRASH = re.compile(
    r"^(?:\[?rank\s?\d+\]?:?\s*)?(?:E\s+)?(?:[\w.]+\.)?\w*(?:Error|Exception)\b(?::|$| \()|"
    r"\bAssertion [`'\"]?.+ failed|"
    r"^Traceback \(most recent call last\)|CUDA error:|device-side assert|^Segmentation fault|core dumped|"
    r"exited with exit code [1-9]|\bSIG(?:SEGV|ABRT|KILL|BUS)\b",
    re.IGNORECASE,
)

_STATED = re.compile(
    r"\b(?:loss|cost|losstensor)\b[^.;\n]{0,30}\b(?:nan|infinite|inf or nan|nan or inf)\b[^.;\n]{0,20}"
    r"\b(?:stop|abort|terminat|exit|diverg|quit)|\bnan (?:in|for|encountered in) (?:the )?loss\b|invalid loss, term|"
    r"\bdiverged with loss ?= ?nan|\blosstensor is inf or nan|\bloss (?:became|is|was|turned) (?:infinite or )?nan\b|"
    r"\bnan loss (?:encountered|detected|during)|\bcost (?:is )?nan\b|\bweights? (?:are |become |turned? )?nan\b",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(?:if|when|whether|no|not|never|without|unless)\b", re.IGNORECASE)
"""`stops if the loss is NaN` states nothing."""

_SUMMARY = ("train_loss", "training_loss")
_EVALUATION = re.compile(r"(?:eval|val|valid|dev|test)\w*[_/ ]?loss")
_REWARDS = ("reward", "return", "epsilon", "score", "episode")


def symptoms_of(runs: Sequence[RunSeries]) -> Symptoms:
    """The symptoms of the sickest of these series, with a crash of any of them."""
    crash = next((m for run in runs for m in run.messages if _CRASH.search(m.text) and not _went_on(run, m)), None)
    recognised = sum(run.points_seen + sum(len(track.values) for track in run.metrics.values()) for run in runs)
    each = [_symptoms(_measured(run), crash, recognised) for run in runs]
    return max(each, key=lambda one: (len(one.trouble), one.points), default=Symptoms(crash=crash))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The numbers of a run, sorted out."""

    run: RunSeries
    everything: list[Point]
    points: list[Point]
    """Those with a loss or a gradient norm."""
    first_bad: Point | None
    good_before: int
    """Of `points`, those before the first bad one; all where none is bad."""
    losses: list[float]
    norms: list[float]
    rates: list[float]
    """Finite learning rates."""
    scales: list[float]
    """Finite loss scales."""
    skips: list[Point]
    evaluations: list[tuple[float, int]]
    """Losses of evaluations, each with its line."""
    summary: list[tuple[float, int]]
    """Losses of a summary at the end, each with its line."""
    stated: Message | None
    """A line that says in words that the loss is not finite."""


def _measured(run: RunSeries) -> _Measured:
    everything = list(run.points)
    points = [point for point in everything if point.loss is not None or point.grad_norm is not None]
    good_before = next((index for index, point in enumerate(points) if point.bad), len(points))
    return _Measured(
        run=run,
        everything=everything,
        points=points,
        first_bad=points[good_before] if good_before < len(points) else None,
        good_before=good_before,
        losses=[point.loss for point in points if point.loss is not None],
        norms=[point.grad_norm for point in points if point.grad_norm is not None],
        rates=finite_of([point.lr for point in everything if point.lr is not None]),
        scales=finite_of([point.loss_scale for point in everything if point.loss_scale is not None]),
        skips=[point for point in everything if point.skipped],
        evaluations=_values_of(run, [name for name in run.metrics if _EVALUATION.search(name)]),
        summary=_values_of(run, [name for name in _SUMMARY if name in run.metrics]),
        stated=next((m for m in run.messages if _STATED.search(m.text) and not _DENIED.search(m.text)), None),
    )


def _symptoms(seen: _Measured, crash: Message | None, recognised: int) -> Symptoms:
    first_bad, points = seen.first_bad, seen.points
    finite, finite_norms = finite_of(seen.losses), finite_of(seen.norms)
    # A summary line is the only witness where nothing else was logged.
    told = finite if seen.losses else finite_of([value for value, _ in seen.summary])
    # A model that has learnt all there is evaluates to next to nothing, too.
    small_evaluation = any(abs(value) <= SMALL_LOSS for value in finite_of([value for value, _ in seen.evaluations]))
    range_test = is_range_test(seen.rates)
    expected_to_rise = range_test or _rewarded(seen.run)
    return Symptoms(
        source=seen.run.source,
        points=len(points),
        first_bad=first_bad,
        good_before=seen.good_before if first_bad is not None else 0,
        bad=sum(point.bad for point in points),
        good_after=sum(not point.bad for point in points[seen.good_before :]),
        bad_losses=_bad_losses(seen),
        bad_norms=len(seen.norms) - len(finite_norms),
        bad_evals=sum(not math.isfinite(value) for value, _ in seen.evaluations),
        zero_losses=0 if zero_was_earned(finite) or small_evaluation else zeros_in(told),
        good_losses=sum(loss > TINY_LOSS for loss in told),
        range_test=range_test,
        zero_norms=sum(norm == 0 for norm in finite_norms),
        first_loss=finite[0] if finite else None,
        best_loss=min(finite, default=None),
        last_loss=finite[-1] if finite else None,
        largest_loss=max(finite, default=None),
        loss_growth=1.0 if expected_to_rise else growth(_losses_of_the_climb(seen)),
        norm_growth=growth([p.grad_norm for p in points[: seen.good_before] if p.grad_norm is not None]),
        largest_norm=max(finite_norms, default=None),
        typical_norm=median(finite_norms) if finite_norms else None,
        skipped=len(seen.skips),
        skipped_last=bool(seen.everything) and seen.everything[-1].skipped,
        longest_skips=_longest_skips(seen.everything),
        first_scale=seen.scales[0] if seen.scales else None,
        last_scale=seen.scales[-1] if seen.scales else None,
        lowest_scale=min(seen.scales, default=None),
        lrs=len(seen.rates),
        zero_lrs=sum(rate == 0 for rate in seen.rates),
        trailing_zero_lrs=trailing_zeros(seen.rates),
        first_lr=seen.rates[0] if seen.rates else None,
        largest_lr=max(seen.rates, default=None),
        lr_at_bad=first_bad.lr if first_bad is not None else None,
        flat=is_flat(finite),
        diverges=not expected_to_rise and diverges(finite),
        absurd=is_absurd(finite) or _absurd_perplexity(seen.run),
        crash=crash,
        where=_places(seen),
        recognised=recognised,
        lost_metrics=0 if seen.losses else sum(_ends_lost(track.values) for track in seen.run.metrics.values()),
    )


def _ends_lost(values: Sequence[float]) -> bool:
    """Not finite to the end: one such value may be that of a class without an example."""
    return len(values) >= 2 and not any(map(math.isfinite, values[-2:]))


def _places(seen: _Measured) -> dict[str, str]:
    """Where in the log each thing that there is can be looked up."""
    points = seen.points
    largest = max(points, key=lambda point: _finite_or(point.loss, -math.inf), default=None)
    found = {
        "first_bad": seen.first_bad,
        "first_zero": next((p for p in points if p.loss is not None and abs(p.loss) <= TINY_LOSS), None),
        "first_skip": seen.skips[0] if seen.skips else None,
        "last_skip": seen.skips[-1] if seen.skips else None,
        "largest_loss": largest,
        "zero_lr": next((p for p in seen.everything if p.lr == 0), None),
        "start": points[0] if points else None,
    }
    where = {name: seen.run.where(point.line) for name, point in found.items() if point is not None}
    bad_evaluation = next((line for value, line in seen.evaluations if not math.isfinite(value)), None)
    if bad_evaluation is not None:
        where["bad_eval"] = seen.run.where(bad_evaluation)
    if seen.summary:
        where["summary"] = seen.run.where(seen.summary[0][1])
    elif seen.stated is not None and seen.first_bad is None:
        where["summary"] = seen.stated.where
    return where


def _bad_losses(seen: _Measured) -> int:
    """Losses that are not finite, whoever tells of them: a step, a summary, a sentence."""
    losses = [*seen.losses, *(value for value, _ in seen.summary)]
    return sum(not math.isfinite(loss) for loss in losses) + (seen.stated is not None)


def _losses_of_the_climb(seen: _Measured) -> list[float]:
    """Losses up to the first bad point. The step that goes bad may still print one, and it belongs to the climb."""
    points = [*seen.points[: seen.good_before], *([] if seen.first_bad is None else [seen.first_bad])]
    return [point.loss for point in points if point.loss is not None]


def _went_on(run: RunSeries, crash: Message) -> bool:
    """Whether measurements follow a crash: it was caught, or the run was taken up again."""
    last = max(crash.line, crash.last_line)
    return sum(point.line > last for point in run.points) >= WENT_ON


def _finite_or(value: float | None, other: float) -> float:
    return value if value is not None and math.isfinite(value) else other


def _values_of(run: RunSeries, names: Sequence[str]) -> list[tuple[float, int]]:
    """The values of these metrics, each with its line."""
    tracks = [run.metrics[name] for name in names]
    return [pair for track in tracks for pair in zip(track.values, track.lines, strict=True)]


def _longest_skips(points: Sequence[Point]) -> int:
    longest = current = 0
    for point in points:
        # A position without numbers between two skips (a progress bar) does not interrupt them.
        if point.skipped:
            current += 1
        elif point.loss is not None or point.grad_norm is not None:
            current = 0
        longest = max(longest, current)
    return longest


def _rewarded(run: RunSeries) -> bool:
    """Whether rewards are what is learnt from: a loss of values rises with them."""
    return any(word in name for name in run.metrics for word in _REWARDS)


def _absurd_perplexity(run: RunSeries) -> bool:
    track = run.metrics.get("ppl") or run.metrics.get("perplexity")
    values = [] if track is None else finite_of(track.values[-3:])
    return bool(values) and min(values) >= ABSURD_PERPLEXITY
