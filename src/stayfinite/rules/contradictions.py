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
from stayfinite.core.series import Point, RunSeries, Track
from stayfinite.rules.lost_ground import (
    back_at_start,
    right_by_chance,
    too_good,
    tosses_about,
    unlearned,
)
from stayfinite.rules.named_numbers import Odd, told
from stayfinite.rules.number_shapes import (
    CHANCE,
    ORDERS,
    SETTLED,
    digits,
    finite_of,
    leap,
    multiplies,
    runs_away,
    trainings,
)
from stayfinite.rules.players import discriminator_wins, generator_wins
from stayfinite.rules.quantities import below_zero, beyond_bounds, collapsed, scale_shrinks, work_stops
from stayfinite.rules.scores import evaluated, rewarded
from stayfinite.rules.symptoms import Clash, Contradiction

_EVALUATED = r"(?:val|valid|validation|test|testing|eval|dev)"
_TRAINED = r"(?:train|training|tr)"
_ACCURACY = r"(?:binary_|(?:sparse_)?categorical_|mean_|avg_|overall_)?acc(?:uracy)?"
_OF_TRAINING = lazy_regex(rf"(?:{_TRAINED}[_/])?{_ACCURACY}")
_OF_EVALUATION = lazy_regex(rf"{_EVALUATED}[_/]{_ACCURACY}")
_OVERLAP = lazy_regex(r"(?:^|[_/])(?:m?iou|jaccard|dice|dsc|f1)(?:$|[_/])")
_SCORED = lazy_regex(r"acc(?:uracy)?$|precision|recall|f1|auc|bleu|iou|dice")
_LIKELIHOOD = lazy_regex(
    r"bpd|bits|nll|likelihood|elbo|(?:^|_)kld?(?:$|_)|reward|return|kpt|rle|(?<!cross_)(?<!cross)entropy"
)
"""Names beside which a loss below 0 is usual."""
MAY_BE_NEGATIVE = (
    r"\belbo\b|\bvae\b|variational|log[-_ ]?likelihood|\bnll|\bflow\b|\bglow\b|"
    r"entropy[-_ ]?(?:bonus|reg|coef|loss_coef)|"
    r"\bppo\b|\breward|policy|\bwgan|adversarial|\bcosine|\bmixture|\bmdn\b|\bgaussian|dice|jaccard|\biou|uncertainty|"
    r"si-?s[nd]r|\bssim\b|\bkl\b|\bmutual|contrastive"
)
"""Words of losses that may be negative in a healthy run."""
USUAL_WITH: dict[Clash, re.Pattern[str]] = {
    "negative loss": lazy_regex(MAY_BE_NEGATIVE, re.IGNORECASE),
    "discriminator wins": lazy_regex(r"\bhinge", re.IGNORECASE),
}
"""Settings beside which numbers like these are usual."""
BELOW = -1.0
"""A cosine or an overlap is no lower; a loss over classes is never below 0."""
BARELY_ABOVE = 1.1
"""Shares in percent are larger."""
OVER = 20.0
"""A larger share is one in percent."""
CLAMPS = {"Keras keeps probabilities above 1e-7": (16.118, 15.942), "BCELoss cuts logarithms at -100": (100.0,)}
"""What one wrong answer costs a network whose outputs are saturated."""
CLAMP_OF_CAFFE = 87.3365
"""-ln of the smallest normal float32."""
NEAR_CLAMP = 0.02
DOUBTFUL = 0.75
"""At a higher accuracy a usual loss is as small."""
LEARNED, FAR_BELOW = 0.8, 0.11
"""A training accuracy, and the share of it that an evaluation reaches where it is asked something else."""
TOP = lazy_regex(
    rf"(?P<before>(?:{_EVALUATED}[_/])?)(?:top_k_accuracy_|(?:prec|acc(?:uracy)?)@|top_?)(?P<k>\d+)(?:_acc\w*)?"
)
NEAR_CHANCE = 0.05
SUMS = 3
"""Losses of which each is the one before plus another of the first."""
EVEN = 0.1
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
_LOSS_OF_EVALUATION = lazy_regex(rf"{_EVALUATED}[_/](?:ce_|cross_entropy_)?loss")
_OF_CLASS = lazy_regex(
    r"(?P<score>iou|dice|ap|f1|recall|acc(?:uracy)?)[_/ ](?:of_|for_)?(?:class|cls|label|category)[_/ ]?\w+"
)
FOUND, NOT_FOUND = 0.8, 0.02
"""Scores of two classes of which one is learned and the other is never predicted."""
MOST_SUM = 20.0
"""ln of a number of classes that nobody has."""
NEAR_SUM, APART = 0.008, 0.03
"""How closely a loss follows an accuracy, and how far that one has to move."""
SURE = 0.1
"""A mean cross entropy below which nearly every answer is right."""
LEAP, NEARLY_ALL = 1.0, 0.9
"""Nats between two policies, and the share of clipped ratios, that one update must not reach."""


def contradictions(run: RunSeries, points: Sequence[Point]) -> tuple[Contradiction, ...]:
    """What does not go together in the numbers of a log."""
    losses = finite_of([point.loss for point in points if point.loss is not None])
    of_rewards = rewarded(run)
    found: dict[Clash, str] = {
        "negative loss": _below_bottom(run, losses),
        "share above 1": _share_above_one(run, losses),
        "overlap above 1": _barely_above_one(run),
        "saturated": _saturated(run, losses),
        "evaluation far off": _gulf(run),
        "random order": _at_chance_by_rank(run, losses),
        "accuracy gone": _gone(run),
        "running sum": _running_sum(run, points),
        "metric explodes": _exploding(run, points),
        "worse than the mean": _worse_than_mean(run),
        "evaluation at chance": _evaluated_at_chance(run),
        "class not found": _class_not_found(run),
        "no advantage": _no_advantage(run, points),
        "softmax twice": _softmax_twice(run, points),
        "rate spent": _rate_spent(run),
        "epochs alike": _epochs_alike(points),
        "nothing right": _nothing_right(run, losses),
        "one set for both": _one_set(run, points),
        "policy leaps": _policy_leaps(run),
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


def _below_bottom(run: RunSeries, losses: Sequence[float]) -> str:
    """A negative loss beside an accuracy: a loss over classes is a logarithm of a probability."""
    if not losses or losses[-1] >= BELOW or any(map(_LIKELIHOOD.search, run.metrics)):
        return ""
    beside = [name for name in run.metrics if _OF_TRAINING.fullmatch(name) or _OF_EVALUATION.fullmatch(name)]
    return f"the loss is {losses[-1]:.4g} beside {beside[0]}: a loss over classes is never negative" if beside else ""


def _share_above_one(run: RunSeries, losses: Sequence[float]) -> str:
    """An overlap above 1 where the loss falls below 0, which it does with targets above 1."""
    if not losses or losses[-1] >= BELOW:
        return ""
    for name, track in run.metrics.items():
        if _OVERLAP.search(name) and 1 < track.values[-1] <= OVER:
            return f"{name} is {track.values[-1]:.4g} and the loss {losses[-1]:.4g}: an overlap is at most 1"
    return ""


def _barely_above_one(run: RunSeries) -> str:
    """An overlap a little above 1: its mean is taken over too few."""
    for name, track in run.metrics.items():
        last = track.values[-1]
        if _OVERLAP.search(name) and 1 < last < BARELY_ABOVE and digits(last) >= SUMS:
            return f"{name} is {last:.4g}: an overlap is at most 1"
    return ""


def _saturated(run: RunSeries, losses: Sequence[float]) -> str:
    """A loss that is the share of wrong answers times what a probability of 0 is cut to: no output is in doubt."""
    if len(losses) >= 2 and all(abs(loss - CLAMP_OF_CAFFE) < 1e-3 for loss in losses[-2:]):
        return f"the loss is {CLAMP_OF_CAFFE}, -ln of the smallest float: the right class has probability 0"
    for name, track in run.metrics.items():
        if not losses or not _OF_TRAINING.fullmatch(name):
            continue
        most = 1 if max(track.values) <= 1 else 100
        ends = list(zip(losses[::-1], [value / most for value in track.values[::-1]], strict=False))[:SUMS]
        for words, costs in CLAMPS.items():
            if ends[0][1] <= DOUBTFUL and any(_all_cost(ends, cost) for cost in costs):
                return (
                    f"the loss is {losses[-1]:.4g} at an accuracy of {ends[0][1]:.4g}: outputs are saturated ({words})"
                )
    return ""


def _all_cost(ends: Sequence[tuple[float, float]], cost: float) -> bool:
    """Whether each loss is the share of wrong answers times what one costs."""
    return all(abs(loss - cost * (1 - right)) <= NEAR_CLAMP * loss for loss, right in ends)


def _gulf(run: RunSeries) -> str:
    """An evaluation far below guessing's beside a training that has learned nearly everything."""
    trained, evaluated = _first(run, _OF_TRAINING), _first(run, _OF_EVALUATION)
    if trained is None or evaluated is None:
        return ""
    best = max(finite_of(evaluated[1].values[-3:]), default=1.0)
    last = trained[1].values[-1]
    if last >= LEARNED * (1 if max(trained[1].values) <= 1 else 100) and best <= FAR_BELOW * last:
        return f"{evaluated[0]} is {best:.4g} where {trained[0]} is {last:.4g}"
    return ""


def _first(run: RunSeries, named: re.Pattern[str]) -> tuple[str, Track] | None:
    return next(((name, track) for name, track in evaluated(run).items() if named.fullmatch(name)), None)


def _at_chance_by_rank(run: RunSeries, losses: Sequence[float]) -> str:
    """A right answer among the first five that is five times as frequent as one at the first place: a random order."""
    for name, track in run.metrics.items():
        found = TOP.fullmatch(name)
        if found is None or found["k"] != "5" or (losses and not found["before"]):
            continue
        five = track.values[-1]
        ones = [each for each in run.metrics if _is_first(each)]
        for one in (f"{found['before']}accuracy", f"{found['before']}acc", *ones):
            values = run.metrics[one].values if one in run.metrics else []
            most = 1 if max((*values, five)) <= 1 else 100
            if values and 0 < five < 0.7 * most and abs(five - 5 * values[-1]) <= NEAR_CHANCE * five:
                return f"{name} is five times {one}: answers are in random order"
    return ""


def _is_first(name: str) -> bool:
    found = TOP.fullmatch(name)
    return found is not None and found["k"] == "1"


def _gone(run: RunSeries) -> str:
    """A training accuracy that begins high and is next to nothing ever after."""
    for name, track in run.metrics.items():
        values = finite_of(track.values)
        if not _OF_TRAINING.fullmatch(name) or len(values) <= SUMS or digits(values[0]) < SUMS:
            continue
        if values[0] >= 0.3 * (1 if max(values) <= 1 else 100) and max(values[1:]) <= 0.2 * values[0]:
            return f"{name} begins at {values[0]:.4g} and falls to {values[-1]:.4g}"
    return ""


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


def _evaluated_at_chance(run: RunSeries) -> str:
    """A loss of ln n with an accuracy of 1/n, at the last evaluation."""
    accuracy = _first(run, _OF_EVALUATION)
    for name, track in run.metrics.items():
        if accuracy is None or not _LOSS_OF_EVALUATION.fullmatch(name):
            continue
        for classes, guess in CHANCE.items():
            right = accuracy[1].values[-1] if max(accuracy[1].values) <= 1 else accuracy[1].values[-1] / 100
            if abs(track.values[-1] - guess) <= 3e-4 * guess and abs(right * classes - 1) <= 0.1:
                return f"{name} is ln {classes} and {accuracy[0]} 1/{classes}: chance"
    return ""


_OF_POSITIVES = tuple(
    lazy_regex(rf"{_EVALUATED}[_/]{name}", re.IGNORECASE) for name in ("precision", "recall", "f1(?:_score)?")
)


def _class_not_found(run: RunSeries) -> str:
    """One class is learned and another is not predicted at all."""
    scores: dict[str, dict[str, float]] = {}
    for name, track in run.metrics.items():
        named = _OF_CLASS.search(name)
        if named and track.values:
            scores.setdefault(named["score"], {})[name] = track.values[-1]
    for each in scores.values():
        worst, best = min(each, key=lambda name: each[name]), max(each, key=lambda name: each[name])
        if each[best] >= FOUND and 0 <= each[worst] <= NOT_FOUND * min(1.0, each[best]):
            return f"{worst} is {each[worst]:.2g} and {best} {each[best]:.2g}"
    three = [_first(run, each) for each in _OF_POSITIVES]
    if all(each is not None and len(each[1].values) >= 2 and not any(each[1].values[-2:]) for each in three):
        return "precision, recall and F1 are 0 at the last two evaluations"
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


def _softmax_twice(run: RunSeries, points: Sequence[Point]) -> str:
    """A loss that is ln(e + n - 1) less the accuracy: what probabilities instead of logits cost among n classes.

    A right answer costs ln(e + n - 1) - 1, a wrong one exactly 1 more.
    """
    trained = {point.line: point.loss for point in points if point.loss is not None}
    losses = [track for name, track in run.metrics.items() if _LOSS_OF_EVALUATION.fullmatch(name)]
    scores = [track for name, track in evaluated(run).items() if _OF_EVALUATION.fullmatch(name)]
    scores += [track for name, track in run.metrics.items() if _OF_TRAINING.fullmatch(name)]
    pairs = [dict(zip(track.lines, track.values, strict=True)) for track in losses]
    for track in scores:
        most = 1 if max(track.values) <= 1 else 100
        for loss in (*pairs, trained):
            rows = [(loss[at], value / most) for at, value in zip(track.lines, track.values, strict=True) if at in loss]
            sums, right = [lost + score for lost, score in rows], [score for _, score in rows]
            if len(rows) < SUMS or not all(0 < each < MOST_SUM for each in sums):
                continue
            if max(sums) - min(sums) > 2 * NEAR_SUM or max(right) - min(right) < APART:
                continue
            classes = math.exp(median(sums)) - math.e + 1
            if classes > 2 and abs(classes - round(classes)) <= NEAR_SUM * (classes + math.e):
                return f"loss and accuracy add up to ln(e + {round(classes) - 1}): a softmax before the loss"
    return ""


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


def _one_set(run: RunSeries, points: Sequence[Point]) -> str:
    """Evaluation losses equal to the last digit to the training's own: both come from the same rows."""
    named = _first(run, _LOSS_OF_EVALUATION)
    losses = [point.loss for point in points if point.loss is not None]
    if named is None or len(losses) != len(named[1].values) or len(losses) < SETTLED:
        return ""
    same = losses == list(named[1].values) and len({*losses}) >= SETTLED and min(map(digits, losses)) >= SUMS
    return f"{named[0]} equals the training loss to the last digit, {len(losses)} times" if same else ""


def _evaluates_alike(run: RunSeries) -> str:
    """An evaluation loss that stays to the last digit, or a score that does beside a loss that hardly moves.

    Beside training losses that move it may be the newest one, printed again.
    """
    named = _first(run, _LOSS_OF_EVALUATION)
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


def _nothing_right(run: RunSeries, losses: Sequence[float]) -> str:
    """An accuracy of exactly 0 in training and evaluation beside a loss that right answers alone have."""
    sides = [_first(run, named) for named in (_OF_TRAINING, _OF_EVALUATION)]
    values = [each[1].values for each in sides if each is not None]
    if len(values) < 2 or any(map(any, values)) or not losses or not 0 < losses[-1] <= SURE:
        return ""
    return f"the accuracy is 0 at a loss of {losses[-1]:.4g}, which takes right answers"


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
