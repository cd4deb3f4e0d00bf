"""What was learned and is lost again, and what is not learned though the loss falls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Point, RunSeries
from stayfinite.rules.named_numbers import Numbers, Odd, column, numbers_by_training, numbers_in

LAST = 3
"""Values in a row that are no accident."""
SETTLED = 4
"""Rows of a loss with its score, or losses at the end, that make a level."""
LONG = 12
"""Losses of a run that fell and rose again."""
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
ROUGH = 100.0
"""A gradient norm that no training has for long."""

_TRAINED = lazy_regex(r"(?:(?:train|training)[_/])?(?:acc(?:uracy)?|(?:sparse_)?categorical_accuracy|binary_accuracy)")
_EVALUATED = lazy_regex(r"(?:val|valid|validation|test|eval|dev)[_/](?:acc(?:uracy)?|(?:sparse_)?categorical_accuracy)")
_LOSS = lazy_regex(r"(?:val|valid|validation|test|eval|dev)[_/](?:ce_|cross_entropy_)?(?:loss|mse|nll)")
_LOWER = lazy_regex(r"(?:^|[_/])(?:fid|kid|wer|cer|lpips|rmse|mae)(?:$|[_/\d])")


def back_at_start(points: Sequence[Point]) -> Odd | None:
    """A loss that had fallen far and is back at its first level, where it stays to the end."""
    each = column(points, "loss")
    losses = each.values
    if len(losses) < LONG or min(losses) <= 0:
        return None
    window = max(SETTLED, len(losses) // 6)
    first, end = losses[0], losses[-window:]
    best = min(median(losses[at : at + SETTLED]) for at in range(len(losses) - SETTLED + 1))
    stays, level = max(end) - min(end) <= 0.05 * median(end), first - 0.15 * (first - best)
    if best <= 0.6 * first and stays and level <= min(end):
        text = f"the loss fell from {first:.4g} to {best:.4g} and is back at {end[-1]:.4g}"
        return Odd(text, each.since(lambda value: value >= level))
    return None


def right_by_chance(run: RunSeries, points: Sequence[Point]) -> Odd | None:
    """An accuracy that stays while its own loss says that more must be right, or the one of an evaluation at chance.

    A wrong answer costs at least ln 2, so a mean loss of L leaves at most L / ln 2 of the answers wrong.
    """
    trained = column(points, "loss").values
    for loss, each in _pairs(run, trained):
        right = _shares(each)
        if len(right) < SETTLED or max(right) - min(right) > STILL or max(right) > POOR:
            continue
        if 0 < loss[-1] <= HALF * loss[0] and 1 - right[-1] > 2 * loss[-1] / COSTS + MARGIN:
            text = f"{each.name} stays at {each.values[-1]:.4g} at a loss of {loss[-1]:.4g}"
            return Odd(f"{text}; a loss this low needs more correct answers", each.lines[0])
    for each in numbers_in(run):
        if not _EVALUATED.fullmatch(each.name) or len(each.values) < SETTLED or not trained:
            continue
        chance = (many for many in KNOWN if all(abs(value * many - 1) <= 0.04 for value in _shares(each)))
        if 0 < trained[-1] <= 0.3 * trained[0] and (classes := next(chance, None)) is not None:
            text = f"{each.name} stays at 1/{classes}, chance, while the training loss falls to {trained[-1]:.4g}"
            return Odd(text, each.lines[0])
    return None


def _shares(each: Numbers) -> list[float]:
    return [value / (1 if max(each.values) <= 1 else 100) for value in each.values]


def _pairs(run: RunSeries, trained: Sequence[float]) -> Iterator[tuple[Sequence[float], Numbers]]:
    """Each loss with the accuracy on the same rows."""
    every = [*numbers_in(run)]
    evaluated = next((each.values for each in every if _LOSS.fullmatch(each.name)), [])
    for each in every:
        loss = trained if _TRAINED.fullmatch(each.name) else evaluated if _EVALUATED.fullmatch(each.name) else []
        if len(loss) == len(each.values):
            yield loss, each


def unlearned(run: RunSeries) -> Odd | None:
    """A score of which less is better that ends above its first value, twice as high as it had been."""
    for each in numbers_by_training(run):
        values = each.values
        if _LOWER.search(each.name) and len(values) > 2 * LAST and min(values) > 0:
            end, best = min(values[-LAST:]), min(values)
            if best <= HALF * values[0] and end >= values[0] and end >= 2 * best:
                text = f"{each.name} had fallen from {values[0]:.4g} to {best:.4g} and is {values[-1]:.4g}"
                return Odd(text, each.since(values[0].__le__))
    return None


def too_good(run: RunSeries, points: Sequence[Point]) -> Odd | None:
    """An evaluation loss near 0 of a model that guessed among the words of a language: it sees its answers."""
    losses = column(points, "loss").values
    if not losses or not OF_WORDS[0] <= losses[0] <= OF_WORDS[1]:
        return None
    for each in numbers_in(run):
        values = each.values[-LAST:]
        if _LOSS.fullmatch(each.name) and len(values) == LAST and 0 < max(values) <= TOO_GOOD:
            text = f"{each.name} is {values[-1]:.3g}: impossible for real text"
            return Odd(text, each.since(lambda value: value <= TOO_GOOD))
    return None


def tosses_about(points: Sequence[Point]) -> Odd | None:
    """Losses of all sizes that never fall, beside gradients that are huge throughout."""
    each, norms = column(points, "loss"), column(points, "grad_norm").values
    losses = each.values
    if len(losses) < 2 * LONG - SETTLED or len(norms) < len(losses) // 2 or min(losses) <= 1:
        return None
    third = len(losses) // 3
    wild = max(losses[-third:]) >= 2.5 * min(losses[-third:])
    if wild and median(norms) >= ROUGH and median(losses[-third:]) >= 0.6 * median(losses[:third]):
        sizes = f"{min(losses):.3g} and {max(losses):.3g}"
        return Odd(f"the loss swings between {sizes} at gradient norms of {median(norms):.3g}", each.lines[0])
    return None
