"""Read the symptoms of a run from its series."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import plain
from stayfinite.core.series import RUNNING_AVERAGE, Message, Point, RunSeries, Track
from stayfinite.rules.contradictions import USUAL_WITH, contradictions, sums_by_epoch
from stayfinite.rules.crashes import crash_in, hung
from stayfinite.rules.measured import EVALUATION, Measured, at_told_chance, measured
from stayfinite.rules.number_shapes import (
    SMALL_LOSS,
    at_chance,
    diverges,
    falls_beyond_noise,
    falls_to_nothing,
    finite_of,
    growth,
    is_absurd,
    is_flat,
    is_lone_spike,
    is_range_test,
    stands_still_by_epochs,
    swings,
    trailing_zeros,
    trainings,
    zero_was_earned,
    zeros_in,
)
from stayfinite.rules.players import two_players
from stayfinite.rules.scores import (
    absurd_loss,
    absurd_perplexity,
    growing_memory,
    has_learned,
    impossible,
    lost_score,
    one_class,
    rewarded,
    still_score,
    unused_code,
    zero_score,
)
from stayfinite.rules.signs.nan_words import prints_not_finite, turned_not_finite, without_empty_statistics
from stayfinite.rules.signs.reported_symptoms import reported_symptoms
from stayfinite.rules.skipped_steps import longest_skips, never_updates, of_steps_taken
from stayfinite.rules.symptoms import TINY_LOSS, Symptoms
from stayfinite.rules.told_courses import reported_courses
from stayfinite.rules.told_symptoms import believed, with_told

REMARKED = 60
"""Lines among which a remark can be separated from library output."""
NO_RATE = 1e-30
"""A smaller learning rate changes no weight in any format."""

MANY_POINTS, LONG, NARROW = 50, 1000, 0.01
"""A loss of so many points, over so many steps, that stays within so much of itself has not moved."""

LATE = 100
"""A step behind the first ones, where lines come at shorter intervals."""
SETTLED = 10
"""So many evaluations show where a loss goes."""
FEW = 3
"""Too few finite losses to vouch for a run that prints NaN elsewhere."""
WELL_BELOW = 0.5
"""Share of the first loss: with that, they vouch for what was printed before them."""

_OVER_NOTHING = r"best|lowest|ep_?(?:rew|len)|episode|clip\b|max_?(?:grad_?)?norm|threshold|limit"
"""Statistics that are NaN or infinite before there is any data, and limits that are infinite where there is none."""
_INSIDE = lazy_regex(
    rf"^(?!.*(?:{_OVER_NOTHING})).*(?:loss|overflow/|activation|logit|hidden|output|weight|param|grad|reward|return|_kl)",
    re.IGNORECASE,
)
"""Numbers of the loss, model, gradients or rewards: one that ends non-finite is enough."""
_EMPTY_MEAN = lazy_regex(r"mean of empty slice", re.IGNORECASE)
"""A mean over nothing: a NaN metric next to it means no more than that."""
_NAMED = lazy_regex(r"\s*([A-Za-z][\w ]{0,40}?)\s*[:=]")
_REGRESSES = lazy_regex(
    r"\bloss\W{1,3}[\w.]{0,20}?(?:mse|mae|mean_(?:squared|absolute)|huber)|\b(?:MSE|L1|SmoothL1|Huber)Loss\b",
    re.IGNORECASE,
)
_PART = lazy_regex(r"loss|grad|weight|param|activation|logit", re.IGNORECASE)


def symptoms_of(runs: Sequence[RunSeries], notes: Sequence[tuple[str, str]] = ()) -> Symptoms:
    """The symptoms of the sickest series, plus crashes of any of them and what the notes say."""
    recognised = sum(run.points_seen + sum(map(_tells, run.metrics.values())) for run in runs)
    crash = crash_in(runs, measured=recognised >= FEW)
    each = [_symptoms(measured(run), crash, recognised) for run in runs]
    seen = max(
        each,
        key=lambda one: (len(one.trouble), one.points),
        default=Symptoms(crash=crash, hung=crash is not None and hung(crash)),
    )
    if seen.chance is None and (classes := at_told_chance(runs, notes)) is not None:
        seen = replace(seen, chance=classes)
    if "acc" in seen.zero_score and any(_REGRESSES.search(text) for _, text in notes):
        seen = replace(seen, zero_score="")  # a regression has no right answers
    usual = {kind for kind, words in USUAL_WITH.items() if any(words.search(text) for _, text in notes)}
    if usual:
        seen = replace(seen, contradictions=tuple(each for each in seen.contradictions if each.kind not in usual))
    nothing = any(map(_means_of_nothing, runs))
    told_lines = [each for run in runs for each in of_steps_taken(run)]
    lines = [*((each.where, each.text) for each in told_lines if not nothing or _PART.search(each.text)), *notes]
    usual_here = {"still"} if any(map(has_learned, runs)) else set()
    if any(USUAL_WITH["negative loss"].search(name) for run in runs for name in run.metrics):
        usual_here.add("negative loss")
    if seen.points > FEW:  # enough numbers, but they do not show what the model answers
        told = [] if seen.trouble or len(lines) > REMARKED else reported_symptoms(lines)
        return with_told(seen, believed(told, seen, runs, usual_here))
    if len(lines) > REMARKED and recognised > REMARKED:
        return seen  # scores of a whole run, and its output: here, too, no remark can be told from it
    complaints = {each.kind: each for each in [*reported_courses(lines), *reported_symptoms(lines)]}
    return with_told(seen, [each for each in complaints.values() if each.kind not in usual_here])


def _tells(track: Track) -> int:
    """How many values say something of a run: many that are all equal may be a setting."""
    return len(track.values) if len(track.values) <= FEW or len({*track.values}) > 1 else 0


def _symptoms(seen: Measured, crash: Message | None, recognised: int) -> Symptoms:
    first_bad, points = seen.first_bad, seen.points
    finite, finite_norms = finite_of(seen.losses), finite_of(seen.norms)
    # A summary line is the only evidence if nothing else was logged.
    told = finite if seen.losses else finite_of([value for value, _ in seen.summary])
    # A model that has learned all there is evaluates to next to nothing, too.
    evaluated = finite_of([value for value, _ in seen.evaluations])
    # At the first evaluation already it is none: one answer was right for all.
    small_evaluation = any(abs(value) <= SMALL_LOSS for value in evaluated) and abs(evaluated[0]) > TINY_LOSS
    range_test = is_range_test(seen.rates)
    expected_to_rise = range_test or rewarded(seen.run) or two_players(seen.run) or _average_falls(seen.run)
    expected_to_rise = expected_to_rise or sums_by_epoch(points)
    losses = [finite_of([point.loss for point in part if point.loss is not None]) for part in trainings(points)]
    return Symptoms(
        source=seen.run.source,
        points=len(points),
        first_bad=first_bad,
        good_before=seen.good_before if first_bad is not None else 0,
        late_start=seen.late_start,
        bad=sum(point.bad for point in points),
        good_after=sum(not point.bad for point in points[seen.good_before :]),
        bad_losses=_bad_losses(seen),
        bad_norms=len(seen.norms) - len(finite_norms),
        bad_evals=sum(not math.isfinite(value) for value, _ in seen.evaluations),
        zero_losses=0 if _may_be_zero(seen.run, finite) or small_evaluation else zeros_in(told),
        good_losses=sum(loss > TINY_LOSS for loss in told),
        range_test=range_test,
        rewarded=rewarded(seen.run),
        zero_norms=sum(norm == 0 for norm in finite_norms),
        first_loss=finite[0] if finite else None,
        best_loss=min(finite, default=None),
        last_loss=finite[-1] if finite else None,
        largest_loss=max(finite, default=None),
        loss_growth=1.0 if expected_to_rise else max(map(growth, _losses_of_the_climb(seen))),
        norm_growth=growth([p.grad_norm for p in points[: seen.good_before] if p.grad_norm is not None]),
        largest_norm=max(finite_norms, default=None),
        typical_norm=median(finite_norms) if finite_norms else None,
        skipped=len(seen.skips),
        skipped_last=bool(seen.everything) and seen.everything[-1].skipped,
        after_skips=_after_skips(seen),
        longest_skips=max(longest_skips(seen.everything), seen.run.skipped_at_once),
        unscaled_skips=sum(point.bad and point.loss_scale is None for point in seen.skips),
        never_updates=never_updates(seen.run),
        first_scale=seen.scales[0] if seen.scales else None,
        last_scale=seen.scales[-1] if seen.scales else None,
        lowest_scale=min(seen.scales, default=None),
        lrs=len(seen.rates),
        zero_lrs=sum(rate <= NO_RATE for rate in seen.rates),
        trailing_zero_lrs=trailing_zeros(seen.rates),
        first_lr=seen.rates[0] if seen.rates else None,
        largest_lr=max(seen.rates, default=None),
        smallest_lr=min((rate for rate in seen.rates if rate > 0), default=None),
        lr_at_bad=first_bad.lr if first_bad is not None else None,
        flat=is_flat(finite)
        or (_by_epochs(points) and stands_still_by_epochs(finite))
        or (not expected_to_rise and _never_moved(points, finite)),
        falls_to_nothing=not rewarded(seen.run) and falls_to_nothing(finite),
        impossible=impossible(seen.run),
        one_class=one_class(seen.run),
        diverges=not expected_to_rise and any(diverges(each, early=not _begins_late(points)) for each in losses),
        lone_spike=is_lone_spike(finite),
        absurd=is_absurd(finite) or absurd_perplexity(seen.run) or absurd_loss(seen.run),
        crash=crash,
        hung=crash is not None and hung(crash),
        where=_places(seen),
        recognised=recognised,
        lost_metrics=(lost := _lost_metrics(seen, bool(finite) or _parts_live(seen.run))),
        lost_at=_lost_at(seen.run, lost),
        printed=_printed(seen, len(finite)),
        chance=at_chance(finite, by_epochs=_by_epochs(points), steps=_span(points)),
        swings=not expected_to_rise and not _keeps_improving(evaluated) and any(map(swings, losses)),
        zero_score=zero_score(seen.run, finite),
        lost_score=lost_score(seen.run),
        unused_code=unused_code(seen.run),
        growing_memory=growing_memory(seen.run),
        contradictions=contradictions(seen.run, points),
        still_score=still_score(seen.run, finite),
    )


def _after_skips(seen: Measured) -> int:
    """Finite losses above 0 after the last skipped step; 0 if a later one is none."""
    last = seen.skips[-1].line if seen.skips else 0
    after = [point.loss for point in seen.points if point.loss is not None and point.line > last]
    return len(after) if all(TINY_LOSS < loss < math.inf for loss in after) else 0


def _lost_metrics(seen: Measured, trains: bool) -> tuple[str, ...]:
    """Metrics that end in non-finite values.

    A single one may come from a class without examples. With a finite loss, a metric must have been finite before and
    stay non-finite, or be one of the model's own numbers.
    """
    found = []
    empty = _means_of_nothing(seen.run)
    for name, track in seen.run.metrics.items():
        lost = len(track.values) - len(finite_of(track.values))
        if not lost or math.isfinite(track.values[-1]) or EVALUATION.search(name) or name == RUNNING_AVERAGE:
            continue  # evaluation losses are counted separately, and averages repeat the loss
        if empty and not _PART.search(name):
            continue
        inside = _INSIDE.search(name) is not None
        if inside or (
            lost >= 2 and (not trains or lost < len(track.values)) and not any(map(math.isfinite, track.values[-lost:]))
        ):
            found.append(name)
    return tuple(found)


def _parts_live(run: RunSeries) -> bool:
    """Whether the last value of each loss among the metrics is finite, and there is one."""
    last = [track.values[-1] for name, track in run.metrics.items() if "loss" in name]
    return bool(last) and all(map(math.isfinite, last))


def _lost_at(run: RunSeries, names: Sequence[str]) -> float | None:
    """The first step, where the log counts them, at which the first of these metrics is not finite."""
    track = run.metrics[names[0]] if names else None
    rows = [] if track is None else zip(track.steps, track.values, strict=True)
    return next((step for step, value in rows if not math.isfinite(value)), None)


def _printed(seen: Measured, finite: int) -> Message | None:
    last = seen.points[-1].line if seen.points else 0
    end = last if finite > FEW else 0
    # Behind the last line that was understood, NaN in line after line is no remark: the run went on like this.
    messages = without_empty_statistics(seen.run.messages)
    if finite == FEW and not seen.first_bad and seen.losses[-1] <= WELL_BELOW * seen.losses[0]:
        messages = [message for message in messages if message.last_line > last]
    after = [message for message in messages if message.line > end and (not end or message.count > FEW)]
    found = next((message for message in after if prints_not_finite(message.text)), None)
    if end:
        return found
    if found is not None and _recovers(seen.run, found):
        return None
    found = found or turned_not_finite(seen.run.messages)
    of_nothing = found is not None and not _PART.search(found.text) and _means_of_nothing(seen.run)
    return None if of_nothing else found


def _recovers(run: RunSeries, printed: Message) -> bool:
    """Whether the number that a line prints is finite in every later one: at first it was one of no rows."""
    named = _NAMED.match(printed.text)
    track = None if named is None else run.metrics.get(plain(named[1]))
    later = (
        [] if track is None else [v for v, at in zip(track.values, track.lines, strict=True) if at > printed.last_line]
    )
    return len(later) > FEW and all(map(math.isfinite, later))


def _means_of_nothing(run: RunSeries) -> bool:
    return any(_EMPTY_MEAN.search(message.text) for message in run.messages)


def _places(seen: Measured) -> dict[str, str]:
    """Locations of the observations in the log."""
    points = seen.points
    largest = max(points, key=lambda point: _finite_or(point.loss, -math.inf), default=None)
    lowest = min(points, key=lambda point: _finite_or(point.loss, math.inf), default=None)
    found = {
        "first_bad": seen.first_bad,
        "first_zero": next((p for p in points if p.loss is not None and abs(p.loss) <= TINY_LOSS), None),
        "first_skip": seen.skips[0] if seen.skips else None,
        "last_skip": seen.skips[-1] if seen.skips else None,
        "largest_loss": largest,
        "lowest_loss": lowest,
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


def _bad_losses(seen: Measured) -> int:
    """Non-finite losses of steps, summaries and messages."""
    losses = [*seen.losses, *(value for value, _ in seen.summary)]
    average = seen.run.metrics.get(RUNNING_AVERAGE)
    # Whatever the loss of now: one that was lost is in the average.
    lost_average = average is not None and not math.isfinite(average.values[-1])
    bad = sum(not math.isfinite(loss) for loss in losses)
    return (bad or lost_average) + (seen.stated is not None)


def _losses_of_the_climb(seen: Measured) -> list[list[float]]:
    """Losses of each training up to the first bad point, including a finite one printed at that step."""
    points = [*seen.points[: seen.good_before], *([] if seen.first_bad is None else [seen.first_bad])]
    return [[point.loss for point in part if point.loss is not None] for part in trainings(points)]


def _finite_or(value: float | None, other: float) -> float:
    return value if value is not None and math.isfinite(value) else other


def _may_be_zero(run: RunSeries, losses: Sequence[float]) -> bool:
    """Whether a loss of 0 tells nothing: it was earned, it is that of two players, or no row was counted yet."""
    counts = [run.metrics[name].values for name in ("bsz", "wpb") if name in run.metrics]
    uncounted = bool(counts) and not any(map(any, counts))  # fairseq prints its meters before the first update
    return uncounted or zero_was_earned(losses) or two_players(run)


def _keeps_improving(evaluated: Sequence[float]) -> bool:
    """Whether an evaluation loss falls to the end: batches that are hard now and then do it no harm."""
    best = min(evaluated, default=0.0)
    return len(evaluated) >= SETTLED and evaluated[-1] <= 1.02 * best and 0 < best <= 0.8 * evaluated[0]


def _by_epochs(points: Sequence[Point]) -> bool:
    """Whether there is one point per epoch, from the first on."""
    epochs = [point.epoch for point in points]
    return bool(epochs) and epochs[0] is not None and epochs[0] <= 1 and len(set(epochs)) == len(epochs)


def _begins_late(points: Sequence[Point]) -> bool:
    """Whether the first point is far from the first step: its loss is not that of the first weights."""
    steps = [point.step for point in points if point.step is not None and math.isfinite(point.step)]
    return len(steps) >= 2 and steps[0] > max(LATE, 10 * abs(steps[1] - steps[0]))


def _never_moved(points: Sequence[Point], losses: Sequence[float]) -> bool:
    """Whether the loss of a log from the first step on, over many steps, neither falls nor leaves a narrow band."""
    steps = [point.step for point in points if point.step is not None and math.isfinite(point.step)]
    if len(losses) < MANY_POINTS or len(steps) < MANY_POINTS or min(losses) <= SMALL_LOSS:
        return False
    from_the_start = steps[0] <= max(1.0, steps[1] - steps[0]) and steps[-1] - steps[0] >= LONG
    third, middle = len(losses) // 3, median(losses)
    falls = falls_beyond_noise(losses[:third], losses[-third:])
    return from_the_start and not falls and max(losses) - min(losses) <= NARROW * middle


def _span(points: Sequence[Point]) -> float:
    steps = [point.step for point in points if point.step is not None and math.isfinite(point.step)]
    return max(steps) - min(steps) if steps else 0.0


def _average_falls(run: RunSeries) -> bool:
    """Whether the running average falls throughout: batches in a special order, such as sorted by length."""
    track = run.metrics.get(RUNNING_AVERAGE)
    values = [] if track is None else track.values
    return len(values) >= FEW and all(after < before for before, after in pairwise(values))
