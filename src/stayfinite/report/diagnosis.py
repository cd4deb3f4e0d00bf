"""Diagnosis and doctor's result on the terminal: verdict, likeliest cause with evidence and fix, then other causes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stayfinite.report.printable import printable, printable_parts
from stayfinite.rules.ranking import A_GUESS, RESTATED

STYLES = {"sick": "bold red", "warning": "bold yellow", "healthy": "bold green", "unknown": "bold yellow"}
SHOWN = 3
"""Findings shown in full."""
WORTH_SHOWING = 0.2
"""Below this confidence, a finding other than the first gets one line."""

COMPLAIN = "Say what you see: --tell symptom=nan (or still, explodes, zero, same, score)"

UNCERTAIN = "Cause not certain. "

INDENT = 2
"""Of what stands below a heading."""

HARMLESS = "SF9"
"""Codes of rules about what only looks like trouble."""


def show_diagnosis(
    diagnosis: Mapping[str, Any],
    console: Console,
    *,
    everything: bool = False,
    notes: Sequence[str] = (),
    by_doctor: bool = False,
) -> None:
    """Print a diagnosis from its plain data.

    Arguments:
        everything: every finding in full, not only the likeliest.
        notes: what else is worth saying of the run, below the headline.
        by_doctor: it comes from the doctor, which is then not advised.
    """
    diagnosis = printable_parts(diagnosis)
    verdict = diagnosis["verdict"]
    console.print(Text.assemble((verdict, STYLES[verdict]), f"  {_headline(diagnosis)}"))
    for note in notes:
        console.print(Text(note, style="yellow"))
    if verdict == "unknown":
        console.print(Text(COMPLAIN, style="dim"))
    loud = [finding for finding in diagnosis["findings"] if finding["severity"] != "info"]
    quiet = [finding for finding in diagnosis["findings"] if finding["severity"] == "info"]
    if (
        not loud
        and verdict != "sick"
        and (possible := [finding for finding in quiet if not finding["code"].startswith(HARMLESS)])
    ):
        quiet = [finding for finding in quiet if finding not in possible]
        console.print(Text(f"Weak guesses from similar reports: {_names(possible)}", style="dim"))
    guesses = [finding for finding in loud if _is_guess(finding)] if loud and _is_guess(loud[0]) else []
    if everything:
        guesses = []
    brief, shown = [], []
    for index, finding in enumerate(loud):
        if finding in guesses:
            continue
        if everything or index == 0 or (index < SHOWN and finding["confidence"] >= WORTH_SHOWING):
            shown.append(finding)
            _show_finding(finding, f"  {finding['confidence']:.0%}  {finding['title']}", finding["evidence"], console)
        elif finding["cause"] not in RESTATED:  # the first line names those
            brief.append(finding)
    if guesses:
        console.print(Text.assemble("\n", (UNCERTAIN, "bold"), f"Similar runs had: {_names(guesses)}"))
    if brief:
        console.print(Text(f"\nless likely: {_names(brief)}", style="dim"))
    if diagnosis.get("differential"):
        _show_differential(diagnosis, console, begin="" if guesses else f"\n{UNCERTAIN}", advise_doctor=not by_doctor)
    for finding in quiet:
        console.print(Text.assemble("\n", (f"{finding['code']} {finding['cause']}", "cyan"), f"  {finding['title']}"))
        _show_lines(finding["evidence"], console)
    unread = [source for source in diagnosis["sources"] if not source["read_as"]]
    for source in unread:
        console.print(Text(f"\nnot read: {source['path']}: {source['said']}", style="yellow"))
    read = [source for source in diagnosis["sources"] if source["read_as"]]
    if read and all(source["read_as"] == "config" for source in read):
        console.print(Text(f"\nBefore a run: stayfinite check {' '.join(each['path'] for each in read)}", style="dim"))
    _show_more(shown, console)


def _is_guess(finding: Mapping[str, Any]) -> bool:
    """Whether experience alone names it, and hardly: that is no answer, and its fix no advice."""
    return finding["confidence"] < WORTH_SHOWING and all(each.startswith(A_GUESS) for each in finding["evidence"])


def _names(findings: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{finding['code']} {finding['cause']} ({finding['confidence']:.0%})" for finding in findings)


def _show_differential(diagnosis: Mapping[str, Any], console: Console, *, begin: str, advise_doctor: bool) -> None:
    """Print the open question: what to try next, and what each cause predicts of it."""
    open_question = diagnosis["differential"]
    console.print(Text.assemble((begin, "bold"), ("Next: ", "bold green"), open_question["try"]))
    width = max(len(each["cause"]) for each in open_question["remaining"]) + 1
    lines = [f"if {each['cause'] + ':':<{width}} {each['predicts']}" for each in open_question["remaining"]]
    key, outcomes = open_question["key"], open_question["outcomes"]
    told = f"--tell {key}=fine ({outcomes['fine']}) or --tell {key}=bad ({outcomes['bad']})"
    lines.append(f"Then run again with {told}")
    script = next((each["path"] for each in diagnosis["sources"] if each["path"].endswith((".py", ".ipynb"))), None)
    if script is not None and advise_doctor:
        lines.append(f"Or prove it: stayfinite doctor {script}")
    _show_lines(lines, console)


def _headline(diagnosis: Mapping[str, Any]) -> str:
    refused = " ".join(f"{line}." for line in diagnosis.get("refused", ()))
    if diagnosis["trouble"]:
        return " ".join(filter(None, ("; ".join(diagnosis["trouble"]) + ".", refused)))
    if refused:
        return refused if diagnosis["verdict"] == "sick" else f"{refused} All steps taken are fine."
    if diagnosis["verdict"] == "healthy":
        return "no problem found in " + _sources(diagnosis)
    if any(source["read_as"] == "incident" for source in diagnosis["sources"]):
        return "one bad step, in " + _sources(diagnosis)
    if diagnosis["verdict"] == "sick":
        return _known_fault(diagnosis)
    return "no known failure found in " + _sources(diagnosis)


def _known_fault(diagnosis: Mapping[str, Any]) -> str:
    """Where the first fault is."""
    places = (finding["where"] for finding in diagnosis["findings"] if finding["severity"] != "info")
    read = (source["path"] for source in diagnosis["sources"] if source["read_as"])
    place = next(places, "") or next(read, "")
    return f"known fault at {place}"


def _sources(diagnosis: Mapping[str, Any]) -> str:
    return "; ".join(f"{source['path']} ({source['said']})" for source in diagnosis["sources"] if source["read_as"])


def show_seen(said: Mapping[str, Any], console: Console) -> None:
    """Print doctor's result from its plain data."""
    said = printable_parts(said)
    verdict = said["verdict"]
    console.print(Text.assemble((verdict, STYLES[verdict]), f"  {headline(said)}"))
    loud = [finding for finding in said["findings"] if finding["severity"] != "info"]
    for finding in loud[:SHOWN]:
        where = f" at {finding['where']}" if finding["where"] else ""
        beside = f"{where}  ({finding['known_by']})"
        _show_finding(finding, beside, (finding["title"], *finding["evidence"]), console)
    if len(loud) > SHOWN:
        names = ", ".join(f"{each['code']} {each['cause']}" for each in loud[SHOWN:])
        console.print(Text(f"\nalso: {names}", style="dim"))
    if patch := said.get("patch"):
        console.print(Text(f"\npatch  {patch['file']}: {patch['words']}"))
    if said.get("not_examined"):
        console.print(Text(f"\nSkipped the one-batch test: {said['not_examined']}.", style="dim"))
    _show_more(loud, console)


def headline(said: Mapping[str, Any]) -> str:
    """One line: how far the program got, and what was seen."""
    names = ", ".join(dict.fromkeys(said["optimizers"]))
    parts = [f"{_steps(said['steps'])}{f' with {names}' if names else ''}"]
    if said["bad_step"] is not None:
        parts.append(f"NaN or inf at step {said['bad_step']}")
    if said["refused"]:
        parts.append(f"{_steps(said['refused'])} refused")
    if skipped := said["skipped_by_scaler"]:
        count, scale = f"{skipped['steps']:,} of {_steps(skipped['of'])}", f"{skipped['scale']:,.10g}"
        parts.append(f"{count} skipped by the loss scaler (scale now {scale})")
    if len(said.get("losses", [])) == 2 and said["bad_step"] not in (0, 1):
        parts.append(f"loss {said['losses'][0]:.4g} to {said['losses'][1]:.4g}")
    if said.get("ended"):
        parts.append(said["ended"])
    return printable("; ".join(parts)) + "."


def _steps(count: int) -> str:
    return f"{count:,} step{'' if count == 1 else 's'}"


def _show_finding(finding: Mapping[str, Any], beside: str, lines: Sequence[str], console: Console) -> None:
    """Print a finding: its name and what stands beside it, lines below, and the fix."""
    colour = "red" if finding["severity"] == "error" else "yellow"
    heading = (f"{finding['code']} {finding['cause']}", f"bold {colour}")
    console.print(Text.assemble("\n", heading, beside))
    _show_lines(lines, console)
    _show_indented(Text.assemble(("fix  ", "bold green"), finding["fix"]), console)


def _show_lines(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        _show_indented(Text(line), console)


def _show_indented(text: Text, console: Console) -> None:
    """Print a text below its heading; where it is wrapped, the rest is indented by two more."""
    wrapped = text.wrap(console, max(20, console.width - 2 * INDENT), overflow="fold")
    for place, line in enumerate(wrapped):
        console.print(Padding(line, (0, 0, 0, 2 * INDENT if place else INDENT), expand=False))


def _show_more(loud: Sequence[Mapping[str, Any]], console: Console) -> None:
    if loud:
        console.print(Text(f"\nMore: stayfinite explain {loud[0]['code']}", style="dim"))


NAMED = 0.3
"""A cause is named from this confidence on."""


def show_apart(
    directory: Path, verdicts: Sequence[Mapping[str, Any]], sources: Sequence[Mapping[str, Any]], console: Console
) -> None:
    """Print each run's verdict with what it shows and its likeliest cause, then what was left out and what to do next.

    Arguments:
        directory: that holds the runs.
        verdicts: on each of them, as plain data.
        sources: what was found in the directory, as plain data.
        console: to print on.
    """
    verdicts, sources = printable_parts(list(verdicts)), printable_parts(list(sources))
    console.print(Text(f"{printable_parts(str(directory))} holds separate runs, judged one by one:", style="bold"))
    names = [_name(each["paths"], directory) for each in verdicts]
    width = min(40, max(map(len, names)))
    for each, name in zip(verdicts, names, strict=True):
        cause = each["cause"]
        named = cause is not None and cause["confidence"] >= NAMED
        known = f"{cause['code']} {cause['cause']} ({cause['confidence']:.0%})" if named else ""
        why = "; ".join(filter(None, (*each["trouble"], known)))
        beside = f"{name:<{width}}  {why}".rstrip()
        console.print(Text.assemble((f"{each['verdict']:<9}", STYLES[each["verdict"]]), beside))
    used = {path for each in verdicts for path in each["paths"]}
    for source in sources:
        if source["read_as"] == "config" and source["path"] not in used:
            console.print(Text(f"\nnot used: {source['path']}: name it with the log of its run", style="yellow"))
        elif not source["read_as"]:
            console.print(Text(f"\nnot read: {source['path']}: {source['said']}", style="yellow"))
    worst = next((each for each in verdicts if each["verdict"] == "sick"), verdicts[0])
    console.print(Text(f"\nMore: stayfinite diagnose {' '.join(worst['paths'])}", style="dim"))


def _name(paths: Sequence[str], directory: Path) -> str:
    inside = [Path(path).relative_to(directory) if directory in Path(path).parents else path for path in paths]
    return " + ".join(map(str, inside))
