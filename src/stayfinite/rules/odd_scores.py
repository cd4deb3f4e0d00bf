"""Accuracies, overlaps and losses that do not belong together."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Point, RunSeries, Track
from stayfinite.rules.number_shapes import CHANCE, digits, finite_of
from stayfinite.rules.scores import evaluated
from stayfinite.rules.symptoms import Clash

_EVALUATED = r"(?:val|valid|validation|test|testing|eval|dev)"
_TRAINED = r"(?:train|training|tr)"
_ACCURACY = r"(?:binary_|(?:sparse_)?categorical_|mean_|avg_|overall_)?acc(?:uracy)?"
_OF_TRAINING = lazy_regex(rf"(?:{_TRAINED}[_/])?{_ACCURACY}")
_OF_EVALUATION = lazy_regex(rf"{_EVALUATED}[_/]{_ACCURACY}")
_OVERLAP = lazy_regex(r"^(?!.*loss).*?(?:^|[_/])(?:m?iou|jaccard|dice|dsc|f1)(?:$|[_/])")
_LIKELIHOOD = lazy_regex(
    r"bpd|bits|nll|likelihood|elbo|(?:^|_)kld?(?:$|_)|reward|return|kpt|rle|(?<!cross_)(?<!cross)entropy"
)
"""Names beside which a loss below 0 is usual."""
BELOW = -1.0
"""A cosine or an overlap is no lower; a loss over classes is never below 0."""
BARELY_ABOVE = 1.1
"""Shares in percent are larger."""
OVER = 20.0
"""A larger share is one in percent."""
CLAMPS = {
    "Keras keeps probabilities above 1e-7": (16.118, 15.942),
    "probabilities are kept above 1e-8": (18.421,),
    "probabilities are kept above 1e-9": (20.723,),
    "BCELoss cuts logarithms at -100": (100.0,),
}
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
LOSS_OF_EVALUATION = lazy_regex(rf"{_EVALUATED}[_/](?:ce_|cross_entropy_)?loss")
_OF_CLASS = lazy_regex(
    r"(?P<score>iou|dice|ap|f1|recall|acc(?:uracy)?)[_/ ](?:of_|for_)?(?:class|cls|label|category)[_/ ]?\w+"
)
FOUND, NOT_FOUND = 0.8, 0.02
"""Scores of two classes of which one is learned and the other is never predicted."""
MOST_SUM = 20.0
"""ln of a number of classes that nobody has."""
NEAR_SUM, APART = 0.008, 0.03
"""How closely a loss follows an accuracy, and how far that one has to move."""
NEAR_FLOOR = 1.02
"""How near to its lowest value the loss of several perfect batches is."""
SURE = 0.1
"""A mean cross entropy below which nearly every answer is right."""
_OF_POSITIVES = tuple(
    lazy_regex(rf"{_EVALUATED}[_/]{name}", re.IGNORECASE) for name in ("precision", "recall", "f1(?:_score)?")
)


def odd_scores(run: RunSeries, points: Sequence[Point]) -> dict[Clash, str]:
    """What is wrong with the scores of a run; an empty text where nothing is."""
    losses = finite_of([point.loss for point in points if point.loss is not None])
    return {
        "negative loss": _below_bottom(run, losses),
        "share above 1": _share_above_one(run, losses),
        "overlap above 1": _barely_above_one(run),
        "saturated": _saturated(run, losses),
        "evaluation far off": _gulf(run),
        "random order": _at_chance_by_rank(run, losses),
        "accuracy gone": _gone(run),
        "evaluation at chance": _evaluated_at_chance(run),
        "class not found": _class_not_found(run),
        "softmax twice": _softmax_twice(run, points) or _all_right_at_floor(run, points),
        "nothing right": _nothing_right(run, losses),
    }


def first_named(run: RunSeries, named: re.Pattern[str]) -> tuple[str, Track] | None:
    """The first metric of such a name."""
    return next(((name, track) for name, track in evaluated(run).items() if named.fullmatch(name)), None)


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
    trained, evaluated = first_named(run, _OF_TRAINING), first_named(run, _OF_EVALUATION)
    if trained is None or evaluated is None:
        return ""
    best = max(finite_of(evaluated[1].values[-3:]), default=1.0)
    last = max(finite_of(trained[1].values[-2:]), default=0.0)  # the last one may be that of a test set
    if last >= LEARNED * (1 if max(trained[1].values) <= 1 else 100) and best <= FAR_BELOW * last:
        return f"{evaluated[0]} is {best:.4g} where {trained[0]} is {last:.4g}"
    return ""


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


def _evaluated_at_chance(run: RunSeries) -> str:
    """A loss of ln n with an accuracy of 1/n, at the last evaluation."""
    accuracy = first_named(run, _OF_EVALUATION)
    for name, track in run.metrics.items():
        if accuracy is None or not LOSS_OF_EVALUATION.fullmatch(name):
            continue
        for classes, guess in CHANCE.items():
            right = accuracy[1].values[-1] if max(accuracy[1].values) <= 1 else accuracy[1].values[-1] / 100
            if abs(track.values[-1] - guess) <= 3e-4 * guess and abs(right * classes - 1) <= 0.1:
                return f"{name} is ln {classes} and {accuracy[0]} 1/{classes}: chance"
    return ""


def _class_not_found(run: RunSeries) -> str:
    """One class is learned, and as many as are learned are not predicted at all: one of several is a rare one."""
    scores: dict[str, dict[str, float]] = {}
    for name, track in run.metrics.items():
        named = _OF_CLASS.search(name)
        if named and track.values:
            scores.setdefault(named["score"], {})[name] = track.values[-1]
    for each in scores.values():
        worst, best = min(each, key=lambda name: each[name]), max(each, key=lambda name: each[name])
        missed = [0 <= value <= NOT_FOUND * min(1.0, each[best]) for value in each.values() if math.isfinite(value)]
        if each[best] >= FOUND and 2 * sum(missed) >= len(missed) > 1 and each[worst] >= 0:
            return f"{worst} is {each[worst]:.2g} and {best} {each[best]:.2g}"
    three = [first_named(run, each) for each in _OF_POSITIVES]
    if all(each is not None and len(each[1].values) >= 2 and not any(each[1].values[-2:]) for each in three):
        return "precision, recall and F1 are 0 at the last two evaluations"
    return ""


def _softmax_twice(run: RunSeries, points: Sequence[Point]) -> str:
    """A loss that is ln(e + n - 1) less the accuracy: what probabilities instead of logits cost among n classes.

    A right answer costs ln(e + n - 1) - 1, a wrong one exactly 1 more.
    """
    trained = {point.line: point.loss for point in points if point.loss is not None}
    losses = [track for name, track in run.metrics.items() if LOSS_OF_EVALUATION.fullmatch(name)]
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


def _all_right_at_floor(run: RunSeries, points: Sequence[Point]) -> str:
    """Batches with every answer right whose losses end at what probabilities instead of logits cost at least."""
    trained = {each.line: each.loss for each in points if each.loss is not None and math.isfinite(each.loss)}
    for name, track in run.metrics.items():
        if not _OF_TRAINING.fullmatch(name) or not all(map(math.isfinite, track.values)):
            continue
        most = 1 if max(track.values) <= 1 else 100
        rows = zip(track.lines, track.values, strict=True)
        lowest = sorted(trained[at] for at, value in rows if at in trained and value >= 0.999 * most)
        for classes in CHANCE if len(lowest) > SUMS else ():
            floor = math.log(math.e + classes - 1) - 1
            if floor >= SURE and 0.999 * floor <= min(trained.values()) and lowest[SUMS] <= NEAR_FLOOR * floor:
                text = f"the loss is never below {lowest[0]:.4g}, with every answer of a batch right"
                return f"{text}; a softmax before the loss allows {floor:.4g} among {classes} classes"
    return ""


def _nothing_right(run: RunSeries, losses: Sequence[float]) -> str:
    """An accuracy of exactly 0 in training and evaluation beside a loss that right answers alone have."""
    sides = [first_named(run, named) for named in (_OF_TRAINING, _OF_EVALUATION)]
    values = [each[1].values for each in sides if each is not None]
    if len(values) < 2 or any(map(any, values)) or not losses or not 0 < losses[-1] <= SURE:
        return ""
    return f"the accuracy is 0 at a loss of {losses[-1]:.4g}, which takes right answers"
