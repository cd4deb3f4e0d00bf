"""How a run turned NaN or infinite: the signs, the start, and remarks about it."""

from __future__ import annotations

import math
import re
from statistics import median

from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.signs.nan_words import prints_not_finite, says_not_finite
from stayfinite.rules.signs.reported_symptoms import told_factor

FEW = 3
"""Too few points to vouch for a run whose messages mention NaN."""

CLIMBS = 1.8
"""Ratio of two reported losses that counts as a climb."""

RISES = (
    r"\b(?:loss\w*|cost|perplexity|ppl|norms?|gradients?|train(?:ing)? error)\b[^.;\n]{0,30}\b(?:ris(?:es|ing)|rose|"
    r"increas(?:es|ing|ed)|climb\w*|goes up|went up|going up|grow(?:s|ing)|grew|blow(?:s|ing)? up|blew up|explod\w*|"
    r"shoots? up|sky-?rocket\w*|diverg(?:es|ed|ing)|huge|astronomical\w*)\b"
)
"""A remark that it climbed."""
_AT_FIRST = r"\b(?:from|at|in|since) the (?:very )?(?:first|1st) (?:iteration|step|batch)\b"


def went_bad(facts: Facts) -> Line | None:
    """``(text, where)`` that shows a run lost to NaN or infinity; None if it is finite or settles.

    Stricter than `witness.not_finite`, which accepts any sign: a loss scaler's search does not count here.
    """
    seen = facts.symptoms
    if seen.bad and not seen.settles:
        what = "the loss is NaN or inf" if seen.bad_losses else "the gradient norm is NaN or inf"
        return Line(seen.at("first_bad"), what)
    if seen.bad_losses:
        return Line(seen.at("summary"), "the final training loss is NaN or inf")
    if seen.healthy and seen.points > FEW:
        return None
    said = next((each for each in facts.reports if says_not_finite(each.text) or prints_not_finite(each.text)), None)
    if said is not None:
        return Line(said.where, said.text)
    if seen.bad_evals:
        return Line(seen.at("bad_eval"), "the evaluation loss is NaN or inf")
    return None


def remark(facts: Facts, pattern: str) -> Line | None:
    """A remark; None for a healthy run, where words alone prove nothing."""
    return None if facts.symptoms.healthy else facts.mentioned(pattern)


def began_well(facts: Facts) -> str | None:
    """What shows that steps worked before the first failure; None if nothing does."""
    seen = facts.symptoms
    if seen.good_before >= 2:
        return f"{seen.good_before} earlier points are fine"
    if seen.late_start:
        return seen.late_start
    iteration = facts.said(
        r"(?:iteration|iter|step)\s?[=:]?\s?\d{3,}.{0,80}\b(?:nan|inf)|(?:nan|infinite).{0,40}(?:iteration|iter|"
        r"step)\s?[=:]?\s?\d{3,}"
    )
    if iteration is not None:
        return "it appears long after the first step"
    return None


def at_first_step(facts: Facts) -> bool:
    """Whether the very first step, before any update, was non-finite."""
    first, seen = facts.symptoms.first_bad, facts.symptoms
    if first is None and seen.bad_losses and not seen.good_losses and facts.said(_AT_FIRST) is not None:
        return True
    return (
        first is not None
        and facts.symptoms.good_before == 0
        and first.step is not None
        and first.step <= 1
        and first.step != first.epoch
        and first.loss is not None
        and not math.isfinite(first.loss)
    )


def weights_survived(facts: Facts) -> bool:
    """Whether NaN losses come and go: overly large steps would have ruined the weights for good."""
    for run in facts.runs:
        losses = [point.loss for point in run.points if point.loss is not None]
        bad = [place for place, loss in enumerate(losses) if not math.isfinite(loss)]
        before = [loss for loss in losses[: bad[0]] if math.isfinite(loss)] if bad else []
        after = [loss for loss in losses[bad[0] :] if math.isfinite(loss)] if bad else []
        if len(before) >= 2 and len(after) >= 3 and median(after) <= 1.5 * median(before):
            return True
    return False


def told_climb(facts: Facts) -> tuple[str, str, bool] | None:
    """``(text, where, by numbers)`` of a remark that loss or gradient climbed, in words or by two numbers."""
    for where, text in [*facts.settings.notes, *((each.where, each.text) for each in facts.messages)]:
        if told_factor(text) >= CLIMBS:
            return text.strip(), where, True
    found = facts.mentioned(RISES)
    if found is None or re.search(r"\b(?:no|not|never|without|if|when)\b", found.text, re.IGNORECASE):
        return None
    return found.text.strip(), found.where, False
