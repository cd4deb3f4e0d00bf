"""What says that something is not finite: the numbers of a run, or a tensor that the log prints."""

from __future__ import annotations

import math
import re

from stayfinite.rules.facts import Facts

_PRINTED = re.compile(
    r"(?<!\w)(?<!\w-)nan\b(?!\s*iterations)(?![-_ ](?:filter|grad\b.{0,20}ignore))|returned nan values|\bnon-?finite\b|"
    r"\bassert not .{0,30}is_?nan\(|\bassert .{0,30}isfinite\(|-nan\(ind\)|1\.#(?:QNAN|IND|INF)|"
    r"\b(?:is_?nan|is_?inf|has_nan|any_nan|nan_any)\b.{0,40}[:=>]\s*(?:tensor\()?True|"
    r"\b(?:is_?finite|all_finite)\b.{0,40}[:=>]\s*(?:tensor\()?False",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"\bloss\w*\b.{0,20}\bnan\b|\btensor had nan|\bis inf or nan|\binvalid loss, terminating|"
    r"\bmodel diverged with loss|\bnan\b.{0,12}\bloss\b|\bgrad\w*\b.{0,20}\bnan\b|returned nan values|"
    r"\bnan\b.{0,40}\bstopp",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:no|without|not|never|zero|0) nan\b|nan iterations:\s*0|ignore_nan|skip_nan|nan_inf_filter", re.IGNORECASE
)


def not_finite(facts: Facts) -> tuple[str, str] | None:
    """``(what, where)`` of the first sign that a loss, a gradient or a printed tensor is NaN or infinite.

    Any sign counts, in any metric; `going_bad.went_bad` asks whether the run was lost to it.
    """
    symptoms = facts.symptoms
    if symptoms.bad_losses:
        return "the loss is not finite", symptoms.where.get("first_bad", symptoms.where.get("summary", ""))
    if symptoms.bad_norms:
        return "the gradient norm is not finite", symptoms.where.get("first_bad", "")
    if symptoms.bad_evals:
        return "the evaluation loss is not finite", symptoms.where.get("bad_eval", "")
    for run in facts.runs:
        for name, track in run.metrics.items():
            at = next(
                (line for value, line in zip(track.values, track.lines, strict=True) if not math.isfinite(value)), None
            )
            if at is not None and "loss" in name.lower():
                return f"{name} is not finite", run.where(at)
    # Beside healthy numbers only a plain statement counts: loggers also complain of a histogram that holds NaN.
    printed = _STATED if symptoms.healthy else _PRINTED
    for message in facts.messages:
        if printed.search(message.text) and not _DENIED.search(message.text):
            return message.text.strip()[:160], message.where
    return None


def sudden(facts: Facts) -> bool:
    """Whether finite points turned bad with no climb of loss or gradient norm before."""
    symptoms = facts.symptoms
    return symptoms.bad > 0 and symptoms.good_before >= 2 and not symptoms.explodes
