"""Diagnosis on the terminal: verdict, likeliest cause with evidence and fix, then other possible causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stayfinite.report.printable import printable_parts
from stayfinite.rules.ranking import SYMPTOMS

STYLES = {"sick": "bold red", "healthy": "bold green", "unknown": "bold yellow"}
SHOWN = 3
"""Findings shown in full."""
WORTH_SHOWING = 0.2
"""Below this confidence, a finding other than the first gets one line."""

COMPLAIN = "If it fails, say how: --tell symptom=nan (or still, explodes, zero, same, score)"

HARMLESS = "SF9"
"""Codes of rules about what only looks like trouble."""


def show_diagnosis(diagnosis: Mapping[str, Any], console: Console, *, everything: bool = False) -> None:
    """Print a diagnosis from its plain data."""
    diagnosis = printable_parts(diagnosis)
    verdict = diagnosis["verdict"]
    console.print(Text.assemble((verdict, STYLES[verdict]), f"  {_headline(diagnosis)}"))
    if verdict == "unknown":
        console.print(Text(COMPLAIN, style="dim"))
    loud = [finding for finding in diagnosis["findings"] if finding["severity"] != "info"]
    quiet = [finding for finding in diagnosis["findings"] if finding["severity"] == "info"]
    if verdict != "sick" and (possible := [finding for finding in quiet if not finding["code"].startswith(HARMLESS)]):
        quiet = [finding for finding in quiet if finding not in possible]
        console.print(Text(f"Possible, from similar reports: {_names(possible)}", style="dim"))
    brief = []
    for index, finding in enumerate(loud):
        if everything or index == 0 or (index < SHOWN and finding["confidence"] >= WORTH_SHOWING):
            _show_finding(finding, console)
        elif finding["cause"] not in SYMPTOMS:  # the first line names those
            brief.append(finding)
    if brief:
        console.print(Text(f"\nless likely: {_names(brief)}", style="dim"))
    if diagnosis.get("differential"):
        _show_differential(diagnosis, console)
    for finding in quiet:
        console.print(Text.assemble("\n", (f"{finding['code']} {finding['cause']}", "cyan"), f"  {finding['title']}"))
        _show_evidence(finding, console)
    unread = [source for source in diagnosis["sources"] if not source["read_as"]]
    for source in unread:
        console.print(Text(f"\nnot read: {source['path']}: {source['said']}", style="yellow"))
    if loud:
        console.print(Text(f"\nMore: stayfinite explain {loud[0]['code']}", style="dim"))


def _names(findings: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{finding['code']} {finding['cause']} ({finding['confidence']:.0%})" for finding in findings)


def _show_differential(diagnosis: Mapping[str, Any], console: Console) -> None:
    """Print the open question: what each cause predicts, and what to try first."""
    open_question = diagnosis["differential"]
    console.print(Text.assemble("\n", ("Not decided. ", "bold"), ("Try: ", "bold green"), open_question["try"]))
    width = max(len(each["cause"]) for each in open_question["remaining"])
    for each in open_question["remaining"]:
        console.print(Padding(Text(f"{each['cause']:<{width}}  predicts: {each['predicts']}"), (0, 0, 0, 2)))
    key, outcomes = open_question["key"], open_question["outcomes"]
    told = f"--tell {key}=fine ({outcomes['fine']}) or {key}=bad ({outcomes['bad']})"
    console.print(Padding(Text(f"Then diagnose again with {told}"), (0, 0, 0, 2)))
    script = next((each["path"] for each in diagnosis["sources"] if each["path"].endswith((".py", ".ipynb"))), None)
    if script is not None:
        console.print(Padding(Text(f"Or prove it: stayfinite doctor {script}"), (0, 0, 0, 2)))


def _headline(diagnosis: Mapping[str, Any]) -> str:
    refused = " ".join(f"{line}." for line in diagnosis.get("refused", ()))
    if diagnosis["trouble"]:
        return " ".join(filter(None, (", ".join(diagnosis["trouble"]) + ".", refused)))
    if refused:
        return f"{refused} All steps taken are fine."
    if diagnosis["verdict"] == "healthy":
        return "no problem found in " + _sources(diagnosis)
    if diagnosis["verdict"] == "sick":
        return "no symptom yet, but a fault in " + _sources(diagnosis)
    return "no known failure found in " + _sources(diagnosis)


def _sources(diagnosis: Mapping[str, Any]) -> str:
    return "; ".join(f"{source['path']} ({source['said']})" for source in diagnosis["sources"] if source["read_as"])


def _show_finding(finding: Mapping[str, Any], console: Console) -> None:
    colour = "red" if finding["severity"] == "error" else "yellow"
    heading = (f"{finding['code']} {finding['cause']}", f"bold {colour}")
    console.print(Text.assemble("\n", heading, f"  {finding['confidence']:.0%}  {finding['title']}"))
    _show_evidence(finding, console)
    console.print(Padding(Text.assemble(("fix  ", "bold green"), finding["fix"]), (0, 0, 0, 2)))


def _show_evidence(finding: Mapping[str, Any], console: Console) -> None:
    for line in finding["evidence"]:
        console.print(Padding(Text(line, overflow="fold"), (0, 0, 0, 2)))
