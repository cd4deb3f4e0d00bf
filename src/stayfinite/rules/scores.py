"""Symptoms in the scores of a run: constant, at chance, exactly 0, or impossible values."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries, Track
from stayfinite.rules.number_shapes import MANY_DIGITS, digits, finite_of, trainings

ABSURD_PERPLEXITY = 1e7
"""exp of a loss of 16: worse than guessing among all words of any language."""

_SCORE = lazy_regex(
    r"(?:^|[_/])dsc(?:$|_)|dice|bleu|chrf|rouge|exact_?match|(?:^|[_/])em(?:$|_)|accuracy|(?:^|[_/])acc(?:$|_)|f1|pass@|"
    r"answer_?rate|meteor|success|solve",
    re.IGNORECASE,
)
_LIKENESS = lazy_regex(r"(?:^|[_/])(?:m?iou|psnr|ssim|ndcg)(?:$|[_@\d])", re.IGNORECASE)
_OVERLAP = lazy_regex(r"(?:^|[_/])m?iou$", re.IGNORECASE)
_OF_ANSWERS = lazy_regex(r"(?:^|[_/])(?:precision|recall|f1)(?:$|[_@\d])", re.IGNORECASE)
_PRECISION = lazy_regex(r"(?:^|[_/])m?ap(?:$|[_@\d])", re.IGNORECASE)
_AREA = lazy_regex(r"(?:^|[_/])(?:auc|auroc|roc_auc)(?:$|_)", re.IGNORECASE)
"""Half of it is a coin's."""
_RIGHT = lazy_regex(r"accuracy|(?:^|[_/])(?:acc(?:$|_)|(?:prec|acc)@1$)", re.IGNORECASE)
_RIGHT_OR_LOSS = lazy_regex(r"acc|loss|nll|mse|mae|ppl")
_ERROR = lazy_regex(r"(?:test|val|valid|validation|dev|eval)[_/]err(?:or)?(?:$|_)", re.IGNORECASE)
"""Of an evaluation: what `_RIGHT` is short of 1."""
_CORRELATION = lazy_regex(r"(?:^|[_/])mcc(?:$|_)|matthews", re.IGNORECASE)
"""Exactly 0 where every answer is the same."""
GOOD_SCORE = 0.9
"""A score this good may stay constant."""
HIGH = 0.8
"""An accuracy that shows that something was learned."""
POOR = 0.2
"""A lower accuracy that is identical at every evaluation means one answer for everything."""
STILL = 5
"""Evaluations needed to call a score constant."""
SCORED = 3
"""Evaluations needed to judge a score of exactly 0."""
_OF_SPLIT = lazy_regex(r"(val|valid|validation|test|eval|dev)(?:$|[_/])")
_SPLIT = lazy_regex(r"^(?:train|training|val|valid|validation|test|eval|dev)[_/]")
OF_VALUES = 10.0
"""A loss this large that falls may be one of values: an accuracy says little there."""
LATE = 10
"""Epochs after which a detector finds something."""
NO_OVERLAP = 1e-6
"""What is added to a denominator of 0 leaves as much."""
FALLEN = 0.8
"""The last loss over the first where it has fallen."""
LEARNED = 0.3
"""What a score has gained, of all that there is to gain, where something was learned."""
_REWARD = lazy_regex(
    r"(?:^|[_/])(?:(?:mean|avg|average|episode|ep)_)?(?:reward|return|rew|score)(?:_mean)?$|^average_?ep_?ret$",
    re.IGNORECASE,
)
_REWARD_TOLD = lazy_regex(r"\W*(?:average|mean|total|episode)[ _]?(?:return|reward)s?\W+\d", re.IGNORECASE)
_REWARDS = ("reward", "return", "epsilon", "score", "episode")
_OF_PAIRS = lazy_regex(
    r"rewards?[/_](?:chosen|rejected|margins?|accurac\w+|real|generated|gap)|reward_(?:accuracy|margin)"
)
"""Of preferences: their loss is that of a classifier."""
_ACTOR_AND_CRITIC = (
    lazy_regex(r"(?:^|[_/])(?:pi|policy|pg|policy_gradient|actor)_loss$"),
    lazy_regex(r"(?:^|[_/])(?:vf?|value|critic|q\d?|qf\d?)_loss$"),
)
LONG = 8
"""Rewards needed to tell a policy that forgot from one that has not begun."""
_RECONSTRUCTION = lazy_regex(r"(?:^|[_/])(?:recon|rec(?:_loss)?$|elbo)", re.IGNORECASE)
_DIVERGENCE = lazy_regex(r"(?:^|[_/])kld?(?:_loss|_div\w*|$)", re.IGNORECASE)
NO_CODE = 1e-5
"""A divergence below this, in nats, is no code."""
_CLASSIFIES = lazy_regex(
    r"(?:^|[_/])(?:cls|ce|bce|class\w*|cross_entropy|objectness)(?:_loss|$)|loss_(?:cls|ce|bce|class\w*|objectness)$"
)
ABSURD_CLASSIFICATION = 1e4
"""A cross entropy is a distance of logits: no model that learns has such."""
ABSURD_OF_ANYTHING = 1e9
_MEMORY = lazy_regex(r"(?:^|[_/])(?:max_)?mem(?:ory)?(?:$|_)", re.IGNORECASE)
LEAKS = 8
"""Lines in which a memory has to grow."""
_PERPLEXITY = lazy_regex(r"(?:^|[_/])(?:ppl|perplexity)$", re.IGNORECASE)
_WORST = (
    (lazy_regex(r"(?:^|[_/ ])(?:wer|cer|mape)(?:$|_)", re.IGNORECASE), {1.0, 100.0}),
    (lazy_regex(r"(?:^|[_/ ])smape(?:$|_)", re.IGNORECASE), {2.0, 200.0}),
)
"""Scores with what they are where every answer is empty, 0 or wrong."""


_TRAINED = lazy_regex(r"(?:train|training)[_/-](?:acc|accuracy)", re.IGNORECASE)
CLASSES = 3
"""Scores of other classes; where all are found, one that never is, is a rare one."""


def _same_to_the_last_digit(metrics: Mapping[str, Track]) -> str | None:
    """The first of several scores that two evaluations of other weights agree on: answers that do not change."""
    scored = {name: track.values for name, track in metrics.items() if _SCORE.search(name) and len(track.values) > 1}
    stand = [name for name, values in scored.items() if len({*values}) == 1 and digits(values[0]) >= MANY_DIGITS]
    losses = [track.values for name, track in metrics.items() if name.endswith("loss") and len(track.values) > 1]
    moved = bool(losses) and all(len({*values}) == len(values) for values in losses)
    poor = all(abs(scored[name][0]) < GOOD_SCORE for name in stand)
    return stand[0] if moved and poor and len(stand) == len(scored) > 1 else None


def _never_changes(run: RunSeries) -> str | None:
    """The training's error in a log in which neither it nor any evaluation ever changes, from the first line on."""
    measured = {name: track.values for name, track in run.metrics.items() if _RIGHT_OR_LOSS.search(name)}
    still = all(
        len(values) >= STILL and len({*values}) == 1 and digits(values[0]) >= SCORED for values in measured.values()
    )
    trained = next((name for name in measured if name.startswith("train")), None)
    return trained if still and len(measured) > 1 else None


def _but_rare_classes(metrics: Mapping[str, Track]) -> dict[str, Track]:
    kept = {}
    for name, track in metrics.items():
        kind = _kind_of_score(name)
        others = [one for each, one in metrics.items() if each != name and _kind_of_score(each) == kind]
        if any(track.values) or len(others) < CLASSES or not all(any(one.values) for one in others):
            kept[name] = track
    return kept


def _kind_of_score(name: str) -> str:
    """What the scores of several classes are called: `iou_class_` of `iou_class_car`, `iou` of `car_iou`."""
    head, of_class, _ = name.partition("_class_")
    return head + of_class if of_class else name.rpartition("_")[2]


def still_score(run: RunSeries, losses: Sequence[float]) -> str:
    """The name of a score that is equal at every evaluation; few digits hide small changes."""
    falls = len(losses) >= 2 and losses[-1] < FALLEN * losses[0]
    if len(set(losses)) == 1:
        return ""  # a progress bar that shows what it had before
    metrics = _but_rare_classes(evaluated(run))
    for of in (_RIGHT, _ERROR):
        guesses = [(name, value) for name, track in metrics.items() if of.search(name) for value in track.values]
        right = [value if of is _RIGHT else (1 if value <= 1 else 100) - value for _, value in guesses]
        if not losses and len(right) >= 2 and _at_chance(right):
            return guesses[0][0]
    for name, track in run.metrics.items():
        if not losses and _TRAINED.fullmatch(name) and len(track.values) >= SCORED + 2 and _near_chance(track.values):
            return name
    for name, track in metrics.items():
        if len(track.values) < SCORED:
            continue
        if _AREA.search(name) and all(abs(value - 0.5) <= 1e-3 for value in track.values):
            return name
        scored = _SCORE.search(name) or (_PRECISION.search(name) and name != "map50")
        if scored and not losses and not any(track.values):
            return name
    for name, track in metrics.items():
        if _CORRELATION.search(name) and len(track.values) >= 2 and not any(track.values):
            return name
        end = track.values[-STILL:]
        exact = len(end) == STILL and len(set(end)) == 1 and digits(end[0]) >= MANY_DIGITS
        if exact and _RIGHT.search(name) and end[0] < GOOD_SCORE * (1 if end[0] <= 1 else 100):
            return name
    split = [track.values for name, track in metrics.items() if _RIGHT.search(name) and "best" not in name]
    if len(split) >= 2 and min(map(len, split)) >= STILL and _at_chance([value for each in split for value in each]):
        return next(name for name in metrics if _RIGHT.search(name) and "best" not in name)
    if (same := _same_to_the_last_digit(metrics) or _never_changes(run)) is not None:
        return same
    for name, track in metrics.items():
        worst = len(track.values) >= SCORED and len({*track.values}) == 1
        if worst and any(of.search(name) and track.values[0] in values for of, values in _WORST):
            return name
    for name, track in metrics.items():
        values = track.values
        if len(set(values)) == 1 and len(values) >= SCORED:
            one = values[0]
            poor = one > 0 and digits(one) >= 3 and (one <= POOR or 1 < one <= 100 * POOR)
            if (_RIGHT.search(name) and poor) or (_REWARD.search(name) and len(values) >= STILL and one < 0):
                return name
    if (
        not losses
        and sum(len(values) for values in _answers(metrics)) >= SCORED
        and not any(map(any, _answers(metrics)))
    ):
        return next(name for name in metrics if _OF_ANSWERS.search(name))
    for name, track in metrics.items():
        values = track.values
        scored = (_SCORE.search(name) or _LIKENESS.search(name)) and "token" not in name
        if len(values) < STILL - (not losses) or len(set(values)) > 1 or not scored:
            continue
        few = digits(values[0]) < 3 and not _prints_digits(metrics)
        good = GOOD_SCORE <= values[0] <= 1 or values[0] >= 100 * GOOD_SCORE
        if not good and math.isfinite(values[0]) and not (falls and few):
            return name
    return ""


def evaluated(run: RunSeries) -> Mapping[str, Track]:
    """The metrics without splits whose numbers, of two or more names, are all exactly 0: those were not evaluated.

    A loss or an accuracy is among them: overlaps and precisions alone are 0 together where nothing is found. Where a
    log has several trainings, the last one tells.
    """
    splits: dict[str, list[str]] = {}
    points = trainings([*run.points])[-1]
    last = points[0].line if points else 0
    for name in run.metrics:
        if found := _OF_SPLIT.match(name):
            splits.setdefault(found[1], []).append(name)
    empty = {
        name
        for names in splits.values()
        if len(names) >= 2
        and any(map(_RIGHT_OR_LOSS.search, names))
        and not any(value for each in names for value in _since(run.metrics[each], last))
        for name in names
    }
    return {name: track for name, track in run.metrics.items() if name not in empty}


def _since(track: Track, line: int) -> Sequence[float]:
    """The values from a line on; all where none is."""
    return track.values[bisect_left(track.lines, line) :] or track.values


def _prints_digits(metrics: Mapping[str, Track]) -> bool:
    """Whether a score of the log has four digits, so that equal ones are equal."""
    return any(digits(value) >= 4 for name, track in metrics.items() if _RIGHT.search(name) for value in track.values)


def _answers(metrics: Mapping[str, Track]) -> list[list[float]]:
    return [track.values for name, track in metrics.items() if _OF_ANSWERS.search(name)]


def _at_chance(scores: Sequence[float]) -> bool:
    """Whether all are the share that guessing among 2, 10, 100 or 1000 classes gets, as fraction or percent."""
    guesses = (0.5, 50.0, 0.1, 10.0, 0.01, 0.001)
    return any(all(abs(score - guess) <= 0.01 * guess for score in scores) for guess in guesses)


def _near_chance(scores: Sequence[float]) -> bool:
    """Whether an accuracy of batches scatters around that of guessing, without a trend."""
    half = len(scores) // 2
    before, after = (sum(each) / len(each) for each in (scores[:half], scores[half:]))
    return any(
        all(abs(score - guess) <= 0.1 * guess for score in scores) and after <= before
        for guess in (0.5, 0.1, 50.0, 10.0)
    )


def zero_score(run: RunSeries, losses: Sequence[float]) -> str:
    """The name of a score that is exactly 0 at every evaluation while the loss falls."""
    precision = run.metrics.get("coco_ap")
    if precision is not None and len(precision.values) >= SCORED and not any(precision.values):
        return "coco_ap"
    for name, track in run.metrics.items():
        late = len(track.values) >= LATE or (name == "map50" and _latest(run) >= LATE)
        if late and _PRECISION.search(name) and not any(track.values) and "class" not in name:
            return name
    if len(losses) < 2 or losses[-1] >= FALLEN * losses[0]:
        return ""
    together: dict[str, list[float]] = {}
    for name, track in _but_rare_classes(evaluated(run)).items():
        if not (_SCORE.search(name) or _OVERLAP.search(name)) or "token" in name:
            continue
        of_values = losses[-1] >= OF_VALUES
        values = together.setdefault(name if of_values else _SPLIT.sub("", name), [])
        values += track.values
        best = name.startswith("best") and len(losses) >= SCORED
        if (best or len(values) >= SCORED) and max(map(abs, values)) <= NO_OVERLAP:
            return name
    return ""


def _latest(run: RunSeries) -> float:
    return max((point.epoch for point in run.points if point.epoch is not None), default=0.0)


GAINED, LASTING = 0.2, 20
"""Less than ``LEARNED``, but gone for the last quarter of so many evaluations."""


def lost_score(run: RunSeries) -> str:
    """The name of a score that had been learned and is back where it began, to the end of the log."""
    for name, track in _by_training(run):
        sign = 1 if _RIGHT.search(name) else -1 if _ERROR.search(name) else 0
        known = [step for step in track.steps if step is not None]
        scores = [sign * value for value in finite_of(track.values)]
        if sign > 0 and len(scores) >= 2 and _fell_off(scores):
            return name
        if not sign or len(scores) <= SCORED:
            continue
        gained = max(scores) - scores[0]
        part = gained / (1 if max(map(abs, scores)) <= 1 else 100)
        gone = len(scores) >= LASTING and max(scores[-(len(scores) // 4) :]) <= scores[0]
        if len(known) < len(track.values) or sorted(set(known)) != known:
            # A step that comes again is another run, or another part of the data.
            if not known and part >= GAINED and gone:
                return name
            continue
        fallen = len(scores) > SCORED and sign > 0 and max(scores) >= 0.5 * (1 if max(scores) <= 1 else 100)
        if fallen and max(scores[-2:]) <= 0.2 * max(scores):
            return name
        if part >= LEARNED and max(scores[-2:]) <= scores[0] + 0.05 * gained:
            return name
        if part >= GAINED and gone:
            return name
    lost = (name for name, track in _by_training(run) if _of_answers(name) and _gone(track.values))
    forgotten = (name for name, track in _by_training(run) if _REWARD.search(name) and _forgotten(track.values))
    return next(lost, next(forgotten, ""))


def _by_training(run: RunSeries) -> Iterator[tuple[str, Track]]:
    """The metrics, apart for each training where a log has several."""
    starts = [part[0].line for part in trainings([*run.points])[1:]]
    for name, track in run.metrics.items():
        cuts = [0, *(bisect_left(track.lines, line) for line in starts), len(track.lines)]
        for start, end in pairwise(cuts):
            if start < end:
                yield name, Track(track.steps[start:end], track.values[start:end], track.lines[start:end])


def _fell_off(accuracies: Sequence[float]) -> bool:
    """Whether the last of them is next to nothing after a high one: no batch or class explains that."""
    best = max(accuracies[:-1])
    return best >= HIGH * (1 if best <= 1 else 100) and accuracies[-1] <= 0.02 * best


def _of_answers(name: str) -> bool:
    """Whether more of it is better, and 0 is the worst."""
    named = (_SCORE, _LIKENESS, _OF_ANSWERS, _PRECISION)
    other = ("class", "token", "reward")
    return any(each.search(name) for each in named) and not any(word in name for word in other)


def _gone(values: Sequence[float]) -> bool:
    """Whether a score had been held for a while and a tenth of it is left, to the end of the log."""
    scores = finite_of(values)
    if len(scores) < LONG or min(scores) < 0:
        return False
    best = max(scores)
    held = any(min(scores[at : at + 3]) >= 0.7 * best for at in range(len(scores) - 5))
    return best >= (0.1 if best <= 1 else 10) and held and max(scores[-3:]) <= 0.1 * best


def rewarded(run: RunSeries) -> bool:
    """Whether it learns from rewards: a value loss rises with them."""
    named = any(word in name.lower() for name in run.metrics for word in _REWARDS if not _OF_PAIRS.search(name))
    told = any(_REWARD_TOLD.match(message.text) for message in run.messages)
    return named or told or all(any(map(each.search, run.metrics)) for each in _ACTOR_AND_CRITIC)


def _forgotten(values: Sequence[float]) -> bool:
    """Whether a reward had been reached three times in a row and is gone, to the end of the log.

    Of single episodes that are won or lost, three in a row are chance.
    """
    rewards = finite_of(values)
    if len(rewards) < LONG:
        return False
    gained = max(rewards) - rewards[0]
    row = 3 if len({*rewards}) > 2 else LONG
    held = any(min(rewards[at : at + row]) >= rewards[0] + 0.8 * gained for at in range(1, len(rewards) - row - 1))
    return gained > 0 and gained >= abs(rewards[0]) and held and max(rewards[-3:]) <= rewards[0] + 0.25 * gained


def has_learned(run: RunSeries) -> bool:
    """Whether an accuracy is high: it may well stand still."""
    last = [track.values[-1] for name, track in run.metrics.items() if _RIGHT.search(name) and track.values]
    return any(HIGH <= value <= 1 or 100 * HIGH <= value <= 100 for value in last)


def _first(run: RunSeries, named: re.Pattern[str], holds: Callable[[Sequence[float]], bool]) -> str:
    """The name of the first metric so named of whose values something holds."""
    return next((name for name, track in run.metrics.items() if named.search(name) and holds(track.values)), "")


def unused_code(run: RunSeries) -> str:
    """The name of a divergence that is next to 0 beside a reconstruction: a model whose latent code says nothing."""
    reconstructs = any(map(_RECONSTRUCTION.search, [*run.metrics, run.loss_name]))
    return _first(run, _DIVERGENCE, lambda values: 0 <= values[-1] < NO_CODE and any(values)) if reconstructs else ""


def absurd_loss(run: RunSeries) -> bool:
    """Whether a loss over classes is of a size that no logits give, or any loss of one that nothing gives."""
    last = {name: track.values[-1] for name, track in run.metrics.items() if math.isfinite(track.values[-1])}
    return any(
        value >= (ABSURD_CLASSIFICATION if _CLASSIFIES.search(name) else ABSURD_OF_ANYTHING)
        for name, value in last.items()
        if _CLASSIFIES.search(name) or name.endswith("loss")
    )


def growing_memory(run: RunSeries) -> str:
    """The name of a memory that grows from each line to the next, by about as much: tensors are kept."""
    return _first(run, _MEMORY, _leaks)


def _leaks(values: Sequence[float]) -> bool:
    gains = [later - earlier for earlier, later in pairwise(values)]
    even = len(values) >= LEAKS and min(gains) > 0 and max(gains) <= 3 * min(gains)
    return even and values[-1] >= 1.01 * values[0]


def one_class(run: RunSeries) -> bool:
    """Whether the last confusion matrix has only one predicted class."""
    track = run.metrics.get("confusion/answers")
    return track is not None and track.values[-1] == 1


def impossible(run: RunSeries) -> str:
    """The name of a metric with an impossible value: a perplexity below 1."""
    # Where the loss is missing, a 0 stands for a missing perplexity.
    least = 0.0 if any(point.loss is not None for point in run.points) else 1e-12
    return _first(run, _PERPLEXITY, lambda values: any(least <= value < 1 for value in finite_of(values[-3:])))


def absurd_perplexity(run: RunSeries) -> bool:
    """Whether the last perplexities are worse than any guess."""
    track = run.metrics.get("ppl") or run.metrics.get("perplexity")
    values = [] if track is None else finite_of(track.values[-3:])
    return bool(values) and min(values) >= ABSURD_PERPLEXITY
