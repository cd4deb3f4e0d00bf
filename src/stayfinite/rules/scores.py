"""Symptoms in the scores of a run: constant, at chance, exactly 0, or impossible values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from stayfinite.core.series import RunSeries
from stayfinite.rules.number_shapes import digits, finite_of

ABSURD_PERPLEXITY = 1e12
"""exp of a loss of 28: worse than guessing among all words of any language."""

_SCORE = re.compile(
    r"(?:^|_)dsc(?:$|_)|dice|bleu|chrf|rouge|exact_?match|(?:^|_)em(?:$|_)|accuracy|(?:^|_)acc(?:$|_)|f1|pass@|answer_?rate|meteor|success|solve",
    re.IGNORECASE,
)
_RIGHT = re.compile(r"accuracy|(?:^|_)acc(?:$|_)", re.IGNORECASE)
GOOD_SCORE = 0.9
"""A score this good may stay constant."""
POOR = 0.2
"""A lower accuracy that is identical at every evaluation means one answer for everything."""
_REWARD = re.compile(r"reward|return(?:$|_)", re.IGNORECASE)
STILL = 5
"""Evaluations needed to call a score constant."""
SCORED = 3
"""Evaluations needed to judge a score of exactly 0."""
FALLEN = 0.8
"""The last loss over the first where it has fallen."""
_PERPLEXITY = re.compile(r"(?:^|_)(?:ppl|perplexity)$", re.IGNORECASE)
_WRONG = re.compile(r"(?:^|[_/ ])(?:wer|cer)(?:$|_)", re.IGNORECASE)
"""Scores of which 1, or 100 percent, is the worst."""


def still_score(run: RunSeries, losses: Sequence[float]) -> str:
    """The name of a score that is equal at every evaluation; few digits hide small changes."""
    falls = len(losses) >= 2 and losses[-1] < FALLEN * losses[0]
    if len(set(losses)) == 1:
        return ""  # a progress bar that shows what it had before
    guesses = [(name, value) for name, track in run.metrics.items() if _RIGHT.search(name) for value in track.values]
    if not losses and len(guesses) >= 2 and _at_chance([value for _, value in guesses]):
        return guesses[0][0]
    for name, track in run.metrics.items():
        if _WRONG.search(name) and len(track.values) >= SCORED and set(track.values) <= {1.0, 100.0}:
            return name
    for name, track in run.metrics.items():
        values = track.values
        if len(set(values)) == 1 and len(values) >= SCORED:
            one = values[0]
            poor = one > 0 and digits(one) >= 3 and (one <= POOR or 1 < one <= 100 * POOR)
            if (_RIGHT.search(name) and poor) or (_REWARD.search(name) and len(values) >= STILL and one < 0):
                return name
    for name, track in run.metrics.items():
        values = track.values
        if len(values) < STILL - (not losses) or len(set(values)) > 1 or not _SCORE.search(name) or "token" in name:
            continue
        good = GOOD_SCORE <= values[0] <= 1 or values[0] >= 100 * GOOD_SCORE
        if not good and math.isfinite(values[0]) and not (falls and digits(values[0]) < 3):
            return name
    return ""


def _at_chance(scores: Sequence[float]) -> bool:
    """Whether all are the share that guessing among 2, 10, 100 or 1000 classes gets, as fraction or percent."""
    guesses = (0.5, 50.0, 0.1, 10.0, 0.01, 0.001)
    return any(all(abs(score - guess) <= 0.01 * guess for score in scores) for guess in guesses)


def zero_score(run: RunSeries, losses: Sequence[float]) -> str:
    """The name of a score that is exactly 0 at every evaluation while the loss falls."""
    precision = run.metrics.get("coco_ap")
    if precision is not None and len(precision.values) >= SCORED and not any(precision.values):
        return "coco_ap"
    if len(losses) < 2 or losses[-1] >= FALLEN * losses[0]:
        return ""
    for name, track in run.metrics.items():
        best = name.startswith("best") and len(losses) >= SCORED
        enough = best or len(track.values) >= SCORED
        if _SCORE.search(name) and "token" not in name and enough and not any(track.values):
            return name
    return ""


def one_class(run: RunSeries) -> bool:
    """Whether the last confusion matrix has only one predicted class."""
    track = run.metrics.get("confusion/answers")
    return track is not None and track.values[-1] == 1


def impossible(run: RunSeries) -> str:
    """The name of a metric with an impossible value: a perplexity below 1."""
    for name, track in run.metrics.items():
        if _PERPLEXITY.search(name) and any(value < 1 for value in finite_of(track.values[-3:])):
            return name
    return ""


def absurd_perplexity(run: RunSeries) -> bool:
    """Whether the last perplexities are worse than any guess."""
    track = run.metrics.get("ppl") or run.metrics.get("perplexity")
    values = [] if track is None else finite_of(track.values[-3:])
    return bool(values) and min(values) >= ABSURD_PERPLEXITY
