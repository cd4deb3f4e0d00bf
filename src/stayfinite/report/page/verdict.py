"""The sentence at the top of the page, and the few figures below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stayfinite.core.curve import Curve
from stayfinite.readers.runs.reader import RunReader
from stayfinite.report.page.plain import text

REFUSING = ("veto", "cut", "rollback", "escalate", "stop")


def guarded_sentence(run: RunReader, findings: list[dict[str, Any]], diagnosis: Mapping[str, Any]) -> str:
    """What became of a guarded run, and why."""
    steps, refused = run.steps.count, refused_steps(run)
    loss = _last(run.steps.curves)
    if not steps:
        return "No step was taken yet."
    if run.events.ended == "stopped" or run.steps.decisions["stop"]:
        words = f"Training was stopped after {_count(steps, 'step')}, {refused:,} of them refused"
    elif run.events.ended == "failed":
        words = f"The training loop failed after {_count(steps, 'step')}"
    elif refused:
        words = f"{refused:,} of {_count(steps, 'step')} {'was' if refused == 1 else 'were'} refused before they "
        words += "could touch the weights"
    elif not findings:
        return f"Healthy: {_count(steps, 'step')}, none refused{loss}."
    else:
        words = f"{_count(steps, 'step')}, none refused{loss}"
    return f"{words}. {_cause(findings, diagnosis)}".strip()


def log_sentence(findings: list[dict[str, Any]], diagnosis: Mapping[str, Any], points: int) -> str:
    """The same for a log that is somebody else's."""
    verdict = diagnosis.get("verdict")
    if verdict == "healthy":
        return f"Healthy: nothing is wrong with its {_count(points, 'measurement')}."
    if verdict != "sick":
        return "Nothing that is known to fail was recognised."
    trouble = ", ".join(text(each, 200) for each in diagnosis.get("trouble") or ())
    said = f"{trouble[:1].upper()}{trouble[1:]}." if trouble else ""
    return f"{said} {_cause(findings, diagnosis)}".strip()


def guarded_figures(run: RunReader) -> list[list[str]]:
    """The numbers that one looks for first."""
    figures = [["steps", f"{run.steps.count:,}"], ["refused", f"{refused_steps(run):,}"]]
    for name, word in (("rollback", "rollbacks"), ("cut", "cuts"), ("escalate", "escalations")):
        if run.steps.decisions[name]:
            figures.append([word, f"{run.steps.decisions[name]:,}"])
    if run.events.counts["checkpoint"]:
        figures.append(["checkpoints", f"{run.events.counts['checkpoint']:,}"])
    if run.incidents:
        figures.append(["incidents", str(len(run.incidents))])
    return figures + curve_figures(run.steps.curves)


def curve_figures(curves: Mapping[str, Curve]) -> list[list[str]]:
    """Of the curves."""
    figures = []
    loss, scale = curves.get("loss"), curves.get("loss_scale")
    if loss is not None and loss.last is not None and loss.low is not None:
        figures += [["last loss", f"{loss.last[1]:.4g}"], ["lowest loss", f"{loss.low:.4g}"]]
    if scale is not None and scale.low is not None:
        figures.append(["lowest loss scale", f"{scale.low:g}"])
    return figures


def refused_steps(run: RunReader) -> int:
    """Steps that were kept from the weights."""
    return sum(run.steps.decisions[name] for name in REFUSING)


def _cause(findings: list[dict[str, Any]], diagnosis: Mapping[str, Any]) -> str:
    loud = [finding for finding in findings if finding["severity"] != "info"]
    if not loud:
        return "" if diagnosis.get("verdict") == "healthy" else "No cause was recognised."
    first = loud[0]
    proof = ", verified by a re-run" if first["verified"] else ""
    word = "Cause" if first["confidence"] >= 0.8 else "Likeliest cause"
    return f"{word}: {first['cause']} ({first['confidence']:.0%}){proof}."


def _last(curves: Mapping[str, Curve]) -> str:
    loss = curves.get("loss")
    return "" if loss is None or loss.last is None else f"; the last loss is {loss.last[1]:.4g}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
