"""What was learned and is lost again, and what is not learned though the loss falls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Point, RunSeries, Track
from stayfinite.rules.number_shapes import finite_of

LAST = 3
"""Values in a row that are no accident."""
SETTLED = 4
"""Rows of a loss with its score, or losses at the end, that make a level."""
LONG = 12
"""Losses of a run that fell and rose again."""
ENOUGH_EVALUATIONS = 5
HALF = 0.5
STILL = 0.06
"""How far an accuracy that tells nothing moves."""
POOR = 0.6
MARGIN = 0.1
COSTS = math.log(2)
"""The least that a wrong answer costs: its class had at least the probability of the right one."""
KNOWN = (2, 3, 4, 5, 6, 8, 10, 20, 50, 100, 200, 1000)
"""Usual numbers of classes."""
OF_WORDS = (8.0, 13.0)
"""The first loss of a model that guesses among the words of a language."""
TOO_GOOD = 0.01
"""A loss per word that no text has."""
HELPLESS = 5.0
"""The loss of a player that is always wrong."""
ROUGH = 100.0
"""A gradient norm that no training has for long."""

_TRAINED = lazy_regex(r"(?:(?:train|training)[_/])?(?:acc(?:uracy)?|(?:sparse_)?categorical_accuracy|binary_accuracy)")
_EVALUATED = lazy_regex(r"(?:val|valid|validation|test|eval|dev)[_/](?:acc(?:uracy)?|(?:sparse_)?categorical_accuracy)")
_LOSS = lazy_regex(r"(?:val|valid|validation|test|eval|dev)[_/](?:ce_|cross_entropy_)?(?:loss|mse|nll)")
_SPLIT = lazy_regex(r"val|valid|validation|test|eval|dev")
"""Beside a loss that is called `train`, the same loss."""
_SCORE = lazy_regex(
    r"(?:val|valid|validation|test|eval|dev|best)\w*[_/].*(?:acc|f1|bleu|auc|map|dice|iou|rouge|recall|precision|"
    r"score|exact|wer|cer|mcc|r2)|^(?:coco_ap|map50|bleu|wer|f1|auc|m?iou|dice|coco/.*)"
)
_LOWER = lazy_regex(r"(?:^|[_/])(?:fid|kid|wer|cer|lpips|rmse|mae)(?:$|[_/\d])")
_D = lazy_regex(r"(?:loss_?|err_?)?(?:d|disc\w*)(?:_?loss)?")
_G = lazy_regex(r"(?:loss_?|err_?)?(?:g|gen|generator)(?:_?loss)?")


def back_at_start(losses: Sequence[float]) -> str:
    """A loss that had fallen far and is back at its first level, where it stays to the end."""
    if len(losses) < LONG or min(losses) <= 0:
        return ""
    window = max(SETTLED, len(losses) // 6)
    first, end = losses[0], losses[-window:]
    best = min(median(losses[at : at + SETTLED]) for at in range(len(losses) - SETTLED + 1))
    stays = max(end) - min(end) <= 0.05 * median(end)
    if best <= 0.6 * first and stays and first - 0.15 * (first - best) <= min(end):
        return f"the loss fell from {first:.4g} to {best:.4g} and is back at {end[-1]:.4g}"
    return ""


def evaluation_rises(run: RunSeries, losses: Sequence[float]) -> str:
    """An evaluation loss at twice its first value, beside a training loss at half of its: only the rows are learned.

    An evaluated score that gains tells of something learned, whatever the loss.
    """
    for name, track in run.metrics.items():
        values = finite_of(track.values)
        is_loss = _LOSS.fullmatch(name) or (run.loss_name.startswith("tr") and _SPLIT.fullmatch(name))
        if not is_loss or len(values) < ENOUGH_EVALUATIONS or values[0] <= 0:
            continue
        end = median(values[-LAST:])
        fitted = len(losses) >= len(values) and losses[-1] <= HALF * losses[0]
        if fitted and end >= 2 * values[0] and not _gains(run):
            return f"{name} rises from {values[0]:.4g} to {values[-1]:.4g} while the training loss falls"
    return ""


def _gains(run: RunSeries) -> bool:
    """Whether any score of the evaluation ends clearly above where it began."""
    for name, track in run.metrics.items():
        values = finite_of(track.values)
        if _SCORE.search(name) and values and abs(median(values[-LAST:]) - values[0]) > 0.05 * max(map(abs, values)):
            return True
    return False


def right_by_chance(run: RunSeries, points: Sequence[Point]) -> str:
    """An accuracy that stays while its own loss says that more must be right, or the one of an evaluation at chance.

    A wrong answer costs at least ln 2, so a mean loss of L leaves at most L / ln 2 of the answers wrong.
    """
    trained = [point.loss for point in points if point.loss is not None]
    for loss, (name, track) in _pairs(run, trained):
        right = [value / (1 if max(track.values) <= 1 else 100) for value in track.values]
        if len(right) < SETTLED or max(right) - min(right) > STILL or max(right) > POOR:
            continue
        if 0 < loss[-1] <= HALF * loss[0] and 1 - right[-1] > 2 * loss[-1] / COSTS + MARGIN:
            return f"{name} stays at {track.values[-1]:.4g} at a loss of {loss[-1]:.4g}, which takes more right answers"
    for name, track in run.metrics.items():
        if not _EVALUATED.fullmatch(name) or len(track.values) < SETTLED or not trained:
            continue
        right = [value / (1 if max(track.values) <= 1 else 100) for value in track.values]
        at = next((each for each in KNOWN if all(abs(value * each - 1) <= 0.04 for value in right)), None)
        if at is not None and 0 < trained[-1] <= 0.3 * trained[0]:
            return f"{name} stays at 1/{at}, chance, while the training loss falls to {trained[-1]:.4g}"
    return ""


def _pairs(run: RunSeries, trained: Sequence[float]) -> Iterator[tuple[Sequence[float], tuple[str, Track]]]:
    """Each loss with the accuracy on the same rows."""
    evaluated = next((track.values for name, track in run.metrics.items() if _LOSS.fullmatch(name)), [])
    for name, track in run.metrics.items():
        loss = trained if _TRAINED.fullmatch(name) else evaluated if _EVALUATED.fullmatch(name) else []
        if len(loss) == len(track.values) and loss:
            yield loss, (name, track)


def unlearned(run: RunSeries) -> str:
    """A score of which less is better that ends above its first value, twice as high as it had been."""
    for name, track in run.metrics.items():
        values = finite_of(track.values)
        if _LOWER.search(name) and len(values) > 2 * LAST and min(values) > 0:
            end = min(values[-LAST:])
            if min(values) <= HALF * values[0] and end >= values[0] and end >= 2 * min(values):
                return f"{name} had fallen from {values[0]:.4g} to {min(values):.4g} and is {values[-1]:.4g}"
    return ""


def too_good(run: RunSeries, losses: Sequence[float]) -> str:
    """An evaluation loss near 0 of a model that guessed among the words of a language: it sees its answers."""
    if not losses or not OF_WORDS[0] <= losses[0] <= OF_WORDS[1]:
        return ""
    for name, track in run.metrics.items():
        values = finite_of(track.values)[-LAST:]
        if _LOSS.fullmatch(name) and len(values) == LAST and 0 < max(values) <= TOO_GOOD:
            return f"{name} is {values[-1]:.3g}: no text can be foreseen like this"
    return ""


def generator_wins(run: RunSeries) -> str:
    """A generator's loss of 0 and a discriminator that is fooled by everything."""
    against = [track.values for name, track in run.metrics.items() if _D.fullmatch(name)]
    makes = [track.values for name, track in run.metrics.items() if _G.fullmatch(name)]
    for lost, won in zip(against, makes, strict=False):
        if len(won) >= ENOUGH_EVALUATIONS and 0 <= max(won[-LAST:]) <= 1e-3 and min(lost[-LAST:]) >= HELPLESS:
            return f"the generator's loss is 0 and the discriminator's {lost[-1]:.4g}"
    return ""


def tosses_about(points: Sequence[Point]) -> str:
    """Losses of all sizes that never fall, beside gradients that are huge throughout."""
    losses = finite_of([point.loss for point in points if point.loss is not None])
    norms = finite_of([point.grad_norm for point in points if point.grad_norm is not None])
    if len(losses) < 2 * LONG - SETTLED or len(norms) < len(losses) // 2 or min(losses) <= 1:
        return ""
    third = len(losses) // 3
    wild = max(losses[-third:]) >= 2.5 * min(losses[-third:])
    if wild and median(norms) >= ROUGH and median(losses[-third:]) >= 0.6 * median(losses[:third]):
        return (
            f"the loss swings between {min(losses):.3g} and {max(losses):.3g} at gradient norms of {median(norms):.3g}"
        )
    return ""
