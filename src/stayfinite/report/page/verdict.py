"""The sentence at the top of the page, and the figures below it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stayfinite.core.curve import Curve
from stayfinite.core.decision import Code
from stayfinite.readers.runs.directory import number
from stayfinite.readers.runs.events import REFUSING
from stayfinite.readers.runs.reader import RunReader
from stayfinite.report.page.plain import text

UNSURE = 0.3
"""Below this confidence a cause is called a guess and listed among the less likely."""

FAINT = 0.2
"""Below this confidence a cause is not mentioned in the headline."""

UNKNOWN = "nan-loss"
"""The rule for non-finite numbers without a known cause."""


def guarded_sentence(run: RunReader, findings: list[dict[str, Any]], diagnosis: Mapping[str, Any]) -> str:
    """Outcome of a guarded run, and the cause."""
    steps, refused = run.steps.count, refused_steps(run)
    loss = "" if run.steps.last_loss is None else f"; the last loss is {_number(run.steps.last_loss)}"
    if not steps:
        return "No step yet."
    searched = run.events.codes[Code.SCALE_SEARCH]
    if run.events.ended == "stopped" or run.steps.decisions["stop"]:
        share = "all" if refused == steps > 1 else f"{refused:,}"
        words = f"Training stopped after {_count(steps, 'step')}, {share} of them refused"
    elif run.events.ended == "failed" and run.events.error == "KeyboardInterrupt":
        words = f"Training was interrupted after {_count(steps, 'step')}, {refused:,} of them refused"
        words = words if refused else f"Training was interrupted after {_count(steps, 'step')}{loss}"
    elif run.events.ended == "failed":
        error = f": {text(run.events.error, 200)}".rstrip(": .")
        words = f"The training loop failed after {_count(steps, 'step')}{error}"
    elif searched and refused == searched:
        healthy = "Healthy: " if diagnosis.get("verdict") == "healthy" else ""
        skipped = f"{searched:,} of {_count(steps, 'step')} {'was' if searched == 1 else 'were'} skipped"
        words = f"{healthy}{skipped} while the loss scale was searched{loss}"
    elif refused:
        words = f"{refused:,} of {_count(steps, 'step')} {'was' if refused == 1 else 'were'} refused before "
        words += f"{'it' if refused == 1 else 'they'} could touch the weights"
    elif run.events.watched:
        watched = run.events.watched
        words = f"{watched:,} of {_count(steps, 'step')} {'was' if watched == 1 else 'were'} bad but taken: "
        words += "monitor only"
    elif not findings:
        healthy = "Healthy: " if diagnosis.get("verdict") == "healthy" else ""
        return f"{healthy}{_count(steps, 'step')}, none refused{loss}."
    else:
        words = f"{_count(steps, 'step')}, none refused{loss}"
    return f"{words}. {_cause(findings, diagnosis)}".strip()


def log_sentence(findings: list[dict[str, Any]], diagnosis: Mapping[str, Any], points: int) -> str:
    """Outcome of a foreign log."""
    verdict = diagnosis.get("verdict")
    if verdict == "healthy":
        return f"Healthy: no problem in {_count(points, 'measurement')}."
    trouble = ", ".join(text(each, 200) for each in diagnosis.get("trouble") or ())
    said = f"{trouble[:1].upper()}{trouble[1:]}." if trouble else ""
    if not trouble:  # a Trainer's log may report steps refused by a guard
        said = " ".join(f"{text(each, 200).rstrip('.')}." for each in diagnosis.get("refused") or ())
    if verdict != "sick":
        return f"{said} No known failure found.".strip()
    return f"{said} {_cause(findings, diagnosis)}".strip()


def guarded_figures(run: RunReader) -> list[list[str]]:
    """Key figures of a guarded run."""
    figures = [["steps", f"{run.steps.count:,}"], ["refused", f"{refused_steps(run):,}"]]
    for name, word in (("rollback", "rollbacks"), ("cut", "cuts"), ("escalate", "escalations")):
        if run.steps.decisions[name]:
            figures.append([word, f"{run.steps.decisions[name]:,}"])
    if run.events.counts["checkpoint"]:
        figures.append(["checkpoints", f"{run.events.counts['checkpoint']:,}"])
    if run.incidents:
        figures.append(["incidents", str(len(run.incidents))])
    if run.events.watched:
        figures.append(["bad, monitor only", f"{run.events.watched:,}"])
    share = number(run.events.slowest.get("share"))
    if share is not None and 0 <= share <= 1:
        rank = text(run.events.slowest.get("slowest_rank", ""), 20)
        figures.append(["slowest rank", f"{rank}, {share:.0%} of a step"])
    return figures + curve_figures(run.steps.curves, run.steps.last_loss)


def curve_figures(curves: Mapping[str, Curve], last: float | None = None) -> list[list[str]]:
    """Key figures from the curves.

    Arguments:
        last: the last accepted loss; default: the newest.
    """
    figures = []
    loss, scale = curves.get("loss"), curves.get("loss_scale")
    last = loss.newest if last is None and loss is not None else last
    if last is not None:
        figures.append(["last loss", _number(last)])
    if loss is not None and loss.low is not None:
        figures.append(["lowest loss", f"{loss.low:.4g}"])
    if scale is not None and scale.low is not None:
        figures.append(["lowest loss scale", f"{scale.low:,.10g}"])
    return figures


def refused_steps(run: RunReader) -> int:
    """Number of refused steps."""
    return sum(run.steps.decisions[name] for name in REFUSING)


def _cause(findings: list[dict[str, Any]], diagnosis: Mapping[str, Any]) -> str:
    loud = [finding for finding in findings if finding["severity"] != "info"]
    if not loud:
        return "" if diagnosis.get("verdict") == "healthy" else "Cause unknown."
    first = loud[0]
    if first["cause"] == UNKNOWN:
        return "Nothing read explains it."
    sure = first["confidence"]
    if sure < FAINT:
        return "Cause unknown."
    proof = ", proved by re-run" if first["verified"] else ""
    word = "Cause:" if sure >= 0.8 else "Likeliest cause:" if sure >= UNSURE else "Perhaps"
    return f"{word} {first['cause']} ({first['confidence']:.0%}){proof}."


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.4g}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
