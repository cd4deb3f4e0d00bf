"""Numbers of a run that no working training shows together.

A loss below its bottom, a share above 1, an evaluation worse than guessing beside a good training.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Point, RunSeries
from stayfinite.rules.lost_ground import (
    back_at_start,
    right_by_chance,
    too_good,
    tosses_about,
    unlearned,
)
from stayfinite.rules.named_numbers import Odd, told
from stayfinite.rules.number_shapes import (
    MANY_DIGITS,
    ORDERS,
    SETTLED,
    digits,
    finite_of,
    leap,
    multiplies,
    runs_away,
    trainings,
)
from stayfinite.rules.odd_scores import LOSS_OF_EVALUATION, SUMS, first_named, odd_scores
from stayfinite.rules.players import discriminator_wins, generator_wins
from stayfinite.rules.quantities import below_zero, beyond_bounds, collapsed, scale_shrinks, work_stops
from stayfinite.rules.scores import rewarded
from stayfinite.rules.symptoms import Clash, Contradiction

_SCORED = lazy_regex(r"acc(?:uracy)?$|precision|recall|f1|auc|bleu|iou|dice")
MAY_BE_NEGATIVE = (
    r"\belbo\b|\bvae\b|variational|log[-_ ]?likelihood|\bnll|\bflow\b|\bglow\b|"
    r"entropy[-_ ]?(?:bonus|reg|coef|loss_coef)|"
    r"\bppo\b|\breward|policy|\bwgan|adversarial|\bcosine|\bmixture|\bmdn\b|\bgaussian|(?<![a-z])dice|jaccard|\biou|uncertainty|"
    r"si-?s[nd]r|\bssim\b|\bkl\b|\bmutual|contrastive"
)
"""Words of losses that may be negative in a healthy run."""
USUAL_WITH: dict[Clash, re.Pattern[str]] = {
    "negative loss": lazy_regex(MAY_BE_NEGATIVE, re.IGNORECASE),
    "discriminator wins": lazy_regex(r"\bhinge", re.IGNORECASE),
}
"""Settings beside which numbers like these are usual."""
EVEN = 0.1
FEW_MISTAKES, UNEVEN = 1.0, 1.4
"""A loss at which about a third of the answers are right, and how far the gains of a summed score differ."""
HARDLY = 2e-4
"""By how much an evaluation loss changes, relative to it, that does not move."""
_OF_MODEL = lazy_regex(
    r"(?:^|[_/])(?:(?:average)?q\d?_?val(?:ue)?s?|values?|logits?|activations?|weights?|outputs?|grads?|r?mse|mae)(?:$|[_/])"
)
ENORMOUS = 1e8
_DISTANCE = lazy_regex(r"(?:^|[_/])(?:l[12]|r?mse|mae|loss|err(?:or)?)(?:$|[_/])")
_COUNTS = lazy_regex(r"scale|token|sample|step|seen|flop|byte|mem|time|count|num|size|iter|epoch|fps|rate")
_MAY_GROW = lazy_regex(r"reward|return|score|lr|elo|total|sum|kl|ppl|perplexity|temp|seed|pid|port|lines?|rows?|cost$")
_VARIANCE = lazy_regex(r"(?:^|[_/])r(?:2|\^2|_squared)(?:$|[_/])|^r2_score")
FAR_BELOW_MEAN = -10.0
LEAP, NEARLY_ALL = 1.0, 0.9
"""Nats between two policies, and the share of clipped ratios, that one update must not reach."""


def contradictions(run: RunSeries, points: Sequence[Point]) -> tuple[Contradiction, ...]:
    """What does not go together in the numbers of a log."""
    losses = finite_of([point.loss for point in points if point.loss is not None])
    of_rewards = rewarded(run)
    found: dict[Clash, str] = {
        **odd_scores(run, points),
        "running sum": _running_sum(run, points) or _running_score(run, losses),
        "metric explodes": _exploding(run, points),
        "worse than the mean": _worse_than_mean(run),
        "no advantage": _no_advantage(run, points),
        "rate spent": _rate_spent(run),
        "epochs alike": _epochs_alike(points),
        "one set for both": _one_set(run, points),
        "policy leaps": _policy_leaps(run),
        "trainings alike": _trainings_alike(run),
        "evaluation frozen": "" if len({*losses}) > 1 else _evaluates_alike(run),
    }
    odd: dict[Clash, Odd | None] = {
        "beyond bounds": beyond_bounds(run, points),
        "below 0": below_zero(run, points),
        "collapsed": collapsed(run),
        "work stops": work_stops(run, points),
        "scale shrinks": scale_shrinks(run),
        "back at start": None if of_rewards else next(filter(None, map(back_at_start, trainings(points))), None),
        "right by chance": right_by_chance(run, points),
        "unlearned": unlearned(run),
        "too good": too_good(run, points),
        "discriminator wins": discriminator_wins(run),
        "generator wins": generator_wins(run),
        "tosses about": None if of_rewards else tosses_about(points),
    }
    clashes = [Contradiction(kind, text) for kind, text in found.items() if text]
    placed = [(kind, each) for kind, each in odd.items() if each is not None]
    return (*clashes, *(Contradiction(kind, told(run, each), run.where(each.line)) for kind, each in placed))


def _exploding(run: RunSeries, points: Sequence[Point]) -> str:
    """A number of the model that grows by orders of magnitude from line to line."""
    norms = [point.grad_norm for point in points if point.grad_norm is not None]
    # What is always negative grows in size, as a likelihood that is lost does.
    sized = {
        name: [-value for value in track.values] if max(track.values) < 0 else track.values
        for name, track in run.metrics.items()
    }
    inside = {
        name: values
        for name, values in sized.items()
        if _OF_MODEL.search(name) or (multiplies(values) and not _COUNTS.search(name))
    }
    for name, values in {"grad_norm": norms, **inside}.items():
        finite = finite_of(values)
        grows = len(finite) >= SUMS and finite == sorted(finite)
        if grows and finite[0] > 0 and finite[-1] >= max(ENORMOUS, ORDERS * finite[0]):
            return f"{name} grows from {finite[0]:.3g} to {finite[-1]:.3g}"
    for name, values in sized.items():
        finite = finite_of(values)
        if not _COUNTS.search(name) and not _MAY_GROW.search(name) and (far := runs_away(finite)):
            return f"{name} grows from {far[0]:.3g} to {far[1]:.3g}"
        if _DISTANCE.search(name) and (levels := leap(finite)):
            return f"{name} leaps from {levels[0]:.3g} to {levels[1]:.3g} and stays there"
    return ""


def _worse_than_mean(run: RunSeries) -> str:
    """A share of variance far below 0, which the mean alone reaches."""
    for name, track in run.metrics.items():
        if _VARIANCE.search(name) and track.values[-1] <= FAR_BELOW_MEAN:
            return f"{name} is {track.values[-1]:.4g}; predicting the mean gives 0"
    return ""


def _policy_leaps(run: RunSeries) -> str:
    """The last update of a policy moved it by more than a nat, with nearly all of its ratios clipped."""
    last = {name.rpartition("/")[2]: track.values[-1] for name, track in run.metrics.items() if track.values}
    kl, clipped = last.get("approx_kl", 0.0), last.get("clip_fraction", 0.0)
    leaps = kl >= LEAP and clipped >= NEARLY_ALL
    return f"approx_kl is {kl:.3g} and clip_fraction {clipped:.3g}" if leaps else ""


def _no_advantage(run: RunSeries, points: Sequence[Point]) -> str:
    """All advantages of the last update are 0: a policy learns nothing from them. After a NaN they tell nothing."""
    if any(point.grad_norm is not None and not math.isfinite(point.grad_norm) for point in points):
        return ""
    rewards = [track.values for name in ("reward", "reward_std") if (track := run.metrics.get(name)) is not None]
    if len(rewards) == 2 and not any(map(any, rewards)):
        return "every reward is 0, so no answer is better than another"
    extremes = [run.metrics.get(f"critic/advantages/{name}") for name in ("max", "min")]
    last = [track.values[-1] for track in extremes if track is not None and track.values]
    return "all advantages are 0" if last == [0.0, 0.0] else ""


def _rate_spent(run: RunSeries) -> str:
    """A learning rate that is 0 before half of the planned epochs or steps."""
    rated = [point for point in run.points if point.lr is not None]
    last = rated[-1] if rated else None
    if last is None or last.lr != 0 or not any(point.lr for point in rated):
        return ""
    for at, total, unit in ((last.epoch, run.total_epochs, "epoch"), (last.step, run.total_steps, "step")):
        if at is not None and total is not None and 0 < at < total / 2:
            return f"the learning rate is 0 at {unit} {at:,.0f} of {total:,.0f}"
    return ""


def _epochs_alike(points: Sequence[Point]) -> str:
    """The losses of an epoch, equal to the last digit to those of the one before: no weight has changed."""
    epochs = [losses for losses in _by_epoch(points) if losses]
    for before, after in pairwise(epochs):
        same = [first == second for first, second in zip(before, after, strict=False)]
        if len(same) >= SETTLED and all(same) and len({*after}) >= SUMS and min(map(digits, after)) >= SUMS:
            return f"{len(same)} losses of one epoch equal those of the epoch before, to the last digit"
    return ""


def _trainings_alike(run: RunSeries) -> str:
    """The mean losses of two trainings, one after the other, that are equal to the last of many digits."""
    losses, times = (run.metrics.get(name) for name in ("train_loss", "train_runtime"))
    if losses is None or times is None or losses.lines != times.lines:
        return ""
    rows = list(zip(losses.values, times.values, strict=True))
    for (loss, seconds), (again, more) in pairwise(rows):
        # One summary that is printed twice took the same time.
        if loss == again and seconds != more and digits(loss) >= MANY_DIGITS:
            return f"two runs end at exactly the same loss {loss:.6g}: no weight changed"
    return ""


def _one_set(run: RunSeries, points: Sequence[Point]) -> str:
    """Evaluation losses equal to the last digit to the training's own: both come from the same rows."""
    named = first_named(run, LOSS_OF_EVALUATION)
    losses = [point.loss for point in points if point.loss is not None]
    if named is None or len(losses) != len(named[1].values) or len(losses) < SETTLED:
        return ""
    same = losses == list(named[1].values) and len({*losses}) >= SETTLED and min(map(digits, losses)) >= SUMS
    return f"{named[0]} equals the training loss exactly in {len(losses)} evaluations" if same else ""


def _evaluates_alike(run: RunSeries) -> str:
    """An evaluation loss that stays to the last digit, or a score that does beside a loss that hardly moves.

    Beside training losses that move it may be the newest one, printed again.
    """
    named = first_named(run, LOSS_OF_EVALUATION)
    losses = finite_of(named[1].values) if named is not None else []
    if named is None or len(losses) < SUMS or min(map(digits, losses)) < SUMS:
        return ""
    if len(losses) >= SETTLED and len({*losses}) == 1:
        return f"{named[0]} is {losses[0]:.6g} at every evaluation"
    scores = [name for name, track in run.metrics.items() if _SCORED.search(name) and _stays(track.values, len(losses))]
    if scores and max(losses) - min(losses) <= HARDLY * max(losses):
        return f"{scores[0]} is the same at every evaluation and {named[0]} hardly moves"
    return ""


def _stays(values: Sequence[float], count: int) -> bool:
    return len(values) >= count and len({*values}) == 1 and digits(values[0]) > SUMS


def _running_sum(run: RunSeries, points: Sequence[Point]) -> str:
    """Losses of which each is the one before plus another of the first, where no epoch begins them anew.

    That is one of each epoch, or one beside each evaluation.
    """
    found = [point for point in points if point.loss is not None]
    losses = [point.loss for point in found if point.loss is not None]
    epochs = {point.epoch for point in found}
    by_epoch = None not in epochs and len(epochs) == len(found)
    scored = any(_SCORED.search(name) and len(track.values) == len(found) for name, track in run.metrics.items())
    rewarded = any("reward" in name or "return" in name for name in run.metrics)
    if rewarded or len(losses) < SUMS or losses[0] <= 0 or not (by_epoch or (scored and epochs == {None})):
        return ""
    even = all(abs(loss / (count * losses[0]) - 1) <= EVEN for count, loss in enumerate(losses, 1))
    return f"the loss grows by {losses[0]:.4g} each time: a sum that is never reset" if even else ""


def _running_score(run: RunSeries, losses: Sequence[float]) -> str:
    """A share of right answers that adds up: each is the one before plus about the first, at a loss of few mistakes."""
    if not losses or losses[-1] > FEW_MISTAKES:
        return ""
    for name, track in run.metrics.items():
        values = track.values
        if len(values) < SUMS + 1 or not _SCORED.search(name) or not values[0] > 0 or values[-1] <= 1:
            continue
        gains = [after - before for before, after in pairwise([0.0, *values])]
        if all(values[0] / UNEVEN <= gain <= values[0] * UNEVEN for gain in gains):
            return f"{name} grows by about {values[0]:.4g} each time: a sum that is never reset"
    return ""


def sums_by_epoch(points: Sequence[Point]) -> bool:
    """Whether losses are summed up within each epoch and begin anew in the next."""
    epochs = [list(each) for each in _by_epoch(points)]
    if len(epochs) < 2 or min(map(len, epochs)) < SUMS:
        return False
    gains = [[after - before for before, after in pairwise([0.0, *losses])] for losses in epochs]
    return all(min(each) > 0 and max(each) <= SUMS * median(each) for each in gains)


def _by_epoch(points: Sequence[Point]) -> Iterator[list[float]]:
    for _, group in groupby((point for point in points if point.loss is not None), key=lambda point: point.epoch):
        yield [point.loss for point in group if point.loss is not None]
