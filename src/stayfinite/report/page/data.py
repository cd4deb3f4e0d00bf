"""Data object of the page: runs as plain JSON, with a sentence and key figures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from stayfinite.core.counting import counted_on
from stayfinite.core.curve import Curve
from stayfinite.core.decision import REFUSING, Code
from stayfinite.core.series import RunSeries
from stayfinite.core.settings import Setting
from stayfinite.errors import UsageError
from stayfinite.readers.runs.directory import number
from stayfinite.readers.runs.reader import RunReader
from stayfinite.report.page import series as drawing
from stayfinite.report.page.details import details_data, incident_data, settings_table, sources_table
from stayfinite.report.page.heat import heat_data
from stayfinite.report.page.plain import objects, records, text, texts, without_repeats
from stayfinite.report.pages import page_as_data
from stayfinite.rules.registry import rule_of

VERSION = 1
"""Version of the data object."""

MOST_FINDINGS = 12
NAMED = 4
"""Runs named in the page title."""

UNSURE = 0.3
"""Below this confidence a cause is called a guess and listed among the less likely."""

FAINT = 0.2
"""Below this confidence a cause is not mentioned in the headline."""

UNKNOWN = "nan-loss"
"""The rule for non-finite numbers without a known cause."""


def page_data(runs: Sequence[dict[str, Any]], *, title: str = "") -> dict[str, Any]:
    """The whole page.

    Arguments:
        runs: results of :func:`run_data` and :func:`log_data`, in the order of their colors.
        title: default: the names of the runs.
    """
    codes = {finding["code"] for run in runs for finding in run["findings"]}
    causes = {incident["cause"] for run in runs for incident in run["incidents"] if incident["cause"]}
    return {
        "version": VERSION,
        "title": text(title or _title([run["name"] for run in runs]), 200),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "stayfinite": _version(),
        "rules": _rules(codes | causes),
        "runs": [run | {"id": f"r{place}"} for place, run in enumerate(runs)],
    }


def _title(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def run_data(run: RunReader, diagnosis: Mapping[str, Any], *, name: str = "") -> dict[str, Any]:
    """Data of a run directory.

    Arguments:
        diagnosis: as returned by ``Diagnosis.to_json()``.
        name: default: the directory's name.
    """
    return run_words(run, diagnosis, name=name) | {
        "series": drawing.series_data(run.steps.curves | drawing.evaluation_curves(run.evaluations)),
        "marks": drawing.marks_data(run.events.marks),
        "layers": None if run.layers is None else heat_data(run.layers),
    }


def run_words(run: RunReader, diagnosis: Mapping[str, Any], *, name: str = "") -> dict[str, Any]:
    """Data of a run without curves, marks and layers: the part a live update can replace each time."""
    incidents = [incident_data(each) for each in run.incidents]
    findings = _findings(diagnosis, incidents)
    curves = run.steps.curves | drawing.evaluation_curves(run.evaluations)
    named = name or run.directory.resolve().name or str(run.directory)
    return _identity(named, run.directory, diagnosis) | {
        "health": None,
        "sentence": f"{guarded_sentence(run, findings, diagnosis)} {drawing.overfitting(curves)}".strip(),
        "note": "",
        "axes": drawing.run_axes(run.events.times, run.steps.curves),
        "figures": guarded_figures(run) + drawing.evaluation_figures(curves),
        "findings": findings,
        "incidents": incidents,
        "details": details_data(run) + sources_table(diagnosis),
    }


def log_data(
    series: RunSeries, diagnosis: Mapping[str, Any], *, name: str = "", settings: Iterable[Setting] = ()
) -> dict[str, Any]:
    """Data of a foreign log, in the same shape."""
    findings = _findings(diagnosis, [])
    counted = counted_on(series)
    curves = drawing.curves_of(counted)
    overfits = drawing.overfitting(curves, _counted_in(series))
    about = _identity(name or Path(series.source).name or series.source, series.source, diagnosis)
    again = drawing.repeated(counted)
    sentence = log_sentence(findings, diagnosis, series.points_seen - again)
    # An overfitting run is not "Healthy", although its numbers are fine.
    sentence = sentence.replace("Healthy: no problem in", "No failure in") if overfits else sentence
    doubtful = overfits and about["verdict"] == "healthy"
    return about | {
        "health": {"word": "warning", "reason": "", "fix": ""} if doubtful else None,
        "sentence": f"{overfits} {sentence}".strip(),
        "note": _note(series, counted, again),
        "figures": [
            ["measurements", f"{series.points_seen - again:,}"],
            *curve_figures(curves),
            *drawing.evaluation_figures(curves, _counted_in(series)),
        ],
        "findings": findings,
        "axes": drawing.axes_of(counted),
        "series": drawing.series_data(curves),
        "marks": drawing.marks_data({"skip": drawing.skips_of(counted)}),
        "layers": None,
        "incidents": [],
        "details": settings_table(settings) + sources_table(diagnosis),
    }


def _identity(name: str, source: object, diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of any run in the same way."""
    return {
        "id": "r0",
        "name": text(name, 120),
        "source": text(source, 400),
        "verdict": text(diagnosis.get("verdict", "unknown"), 20),
        "trouble": [text(each, 300) for each in diagnosis.get("trouble") or ()],
    }


def _findings(diagnosis: Mapping[str, Any], incidents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    proofs = {each["cause"]: each["fix"]["by"] for each in incidents if each["cause"] and each["fix"]["verified"]}
    return [
        {
            **texts({"severity": "info"} | finding, code=20, cause=80, severity=20, where=400, title=400, fix=2_000),
            "confidence": float(finding.get("confidence", 0.0)),
            "evidence": [_said(text(line), finding) for line in finding.get("evidence") or ()],
            "verified": finding.get("cause") in proofs,
            "by": proofs.get(str(finding.get("cause"))),
        }
        for finding in records(diagnosis.get("findings"), MOST_FINDINGS)
    ]


def _note(series: RunSeries, counted: RunSeries, again: int) -> str:
    if again:
        return f"The run was resumed: {again:,} steps were measured twice; the second measurement is shown."
    if _unnumbered(series):
        return "This log has no step numbers: measurements are counted."
    return "" if counted is series else "This log restarts its step count in each epoch: steps are counted on."


def overfits_in_words(series: RunSeries) -> str:
    """A sentence where a log shows overfitting; otherwise empty."""
    return drawing.overfitting(drawing.curves_of(counted_on(series)), _counted_in(series))


def _counted_in(series: RunSeries) -> str:
    """What the numbers of a log's points count."""
    if _unnumbered(series):
        return "measurement"
    by_epoch = all(point.step == point.epoch for point in islice(series.points, 100))
    return "epoch" if by_epoch else "step"


def _unnumbered(series: RunSeries) -> bool:
    return all(point.step is None for point in islice(series.points, 100))


def _said(line: str, finding: Mapping[str, Any]) -> str:
    """Evidence without the place, cause and fix, which the card shows already."""
    return without_repeats(line.removeprefix(f"{finding.get('where')}: "), finding.get("cause"))


@cache
def _version() -> str:
    try:
        return metadata.version("stayfinite")
    except metadata.PackageNotFoundError:
        return ""  # running from source


def _rules(names: set[str]) -> dict[str, Any]:
    """Pages of the named rules, by code."""
    pages = {}
    for name in sorted(names):
        try:
            rule = rule_of(name)
        except UsageError:
            continue  # a rule of another version
        page = page_as_data(rule)
        pages[rule.code] = page | {"sections": dict(objects(page["sections"]))}
    return dict(sorted(pages.items()))


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
        skipped = f"{searched:,} of {_count(steps, 'step')} {'was' if searched == 1 else 'were'} refused"
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
    trouble = "; ".join(text(each, 200) for each in diagnosis.get("trouble") or ())
    said = f"{trouble[:1].upper()}{trouble[1:]}." if trouble else ""
    if not trouble:  # a Trainer's log may report steps refused by a guard
        said = " ".join(f"{text(each, 200).rstrip('.')}." for each in diagnosis.get("refused") or ())
    if verdict not in ("sick", "warning"):
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
