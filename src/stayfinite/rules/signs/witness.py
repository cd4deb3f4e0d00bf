"""Signs of non-finite values: the numbers of a run, or a printed tensor."""

from __future__ import annotations

import math

from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.signs.nan_words import prints_not_finite, says_not_finite


def not_finite(facts: Facts) -> Line | None:
    """The first sign that a loss, a gradient or a printed tensor is NaN or infinite.

    Any sign in any metric counts; `going_bad.went_bad` decides whether the run was lost to it.
    """
    symptoms = facts.symptoms
    if symptoms.bad_losses:
        return Line(symptoms.at("first_bad", "summary"), "the loss is NaN or inf")
    if symptoms.bad_norms:
        return Line(symptoms.at("first_bad"), "the gradient norm is NaN or inf")
    if symptoms.bad_evals:
        return Line(symptoms.at("bad_eval"), "the evaluation loss is NaN or inf")
    for run in facts.runs:
        for name, track in run.metrics.items():
            at = next(
                (line for value, line in zip(track.values, track.lines, strict=True) if not math.isfinite(value)), None
            )
            if at is not None and ("loss" in name.lower() or name in symptoms.lost_metrics):
                return Line(run.where(at), f"{name} is NaN or inf")
    # With healthy numbers only an explicit statement counts: loggers also report NaN in a histogram.
    for message in facts.reports:
        if says_not_finite(message.text, of_loss=symptoms.healthy) or (
            not symptoms.healthy and prints_not_finite(message.text)
        ):
            return Line(message.where, message.text.strip()[:160])
    return None


def sudden(facts: Facts) -> bool:
    """Whether finite points turned bad without a climb of loss or gradient norm."""
    symptoms = facts.symptoms
    return symptoms.bad > 0 and symptoms.good_before >= 2 and not symptoms.explodes
