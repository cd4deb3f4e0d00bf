"""Checkpoint scan on the terminal: table, findings, and where to resume."""

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stayfinite.readers.checkpoints.result import counted
from stayfinite.report.printable import in_one_line, printable_parts

STYLES = {"good": "green", "poisoned": "bold red", "damaged": "red", "suspect": "yellow", "unknown": "yellow"}
COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}
ROWS = 24
"""More checkpoints than this are elided in the middle."""

MOST = {"error": 6, "warning": 3, "info": 1}
"""Findings per code that are shown."""


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print a scan from its plain data."""
    result = printable_parts(result, in_one_line)  # names come from files
    checkpoints = result["checkpoints"]
    if checkpoints:
        base = _common([each["path"] for each in checkpoints])
        if base:
            console.print(Text(f"in {base}:", style="dim"), soft_wrap=True)
        console.print(_table(checkpoints, base))
    for line in _findings(result["findings"]):
        console.print(line, soft_wrap=True)
    console.print(Text(last_line(result), style="bold"), soft_wrap=True)


def last_line(result: Mapping[str, Any]) -> str:
    """The newest good checkpoint, and the step at which NaN or inf entered."""
    good, entered = result["newest_good"], result["poison_entered"]
    many = len(result["checkpoints"])
    if not many:
        return "No checkpoint found."
    if entered is None and result["verdict"] == "healthy":
        if many == 1:
            return "The checkpoint is good: no NaN or inf."
        return f"All {many} checkpoints are good; the newest is {_called(good['path'], good['step'])}."
    words = []
    if entered is not None:
        by = _called(entered["by"], entered["by_step"])
        if entered["after"] is None:
            dated = entered["by_step"] is not None and many > 1
            held = next((each["not_finite"] for each in result["checkpoints"] if each["path"] == entered["by"]), None)
            holds = "holds NaN or inf" if held else "would make the next step NaN"
            words.append(f"Already bad in the oldest one, {by}." if dated else f"{by} {holds}.")
        elif entered["after_step"] is not None and entered["by_step"] is not None:
            words.append(f"First bad between step {entered['after_step']} and step {entered['by_step']}.")
        else:
            words.append(f"First bad between {_called(entered['after'], None)} and {by}.")
    if good:
        words.append(f"Newest good checkpoint: {_called(good['path'], good['step'])}.")
    elif all(each["state"] == "unknown" for each in result["checkpoints"]):
        words.append("No values were checked.")
    elif any(each["state"] == "good" for each in result["checkpoints"]):
        words.append("No good checkpoint of this run; the good ones belong to another.")
    else:
        words.append("No good checkpoint.")
    return " ".join(words)


def _table(checkpoints: Sequence[Mapping[str, Any]], base: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("checkpoint", overflow="fold")
    for name in ("step", "files", "size", "tensors", "not finite"):
        table.add_column(name, justify="right")
    table.add_column("")
    left_out = len(checkpoints) - ROWS
    for number, each in enumerate(checkpoints):
        if left_out > 0 and ROWS // 2 <= number < ROWS // 2 + left_out:
            if number == ROWS // 2:
                states = Counter(each["state"] for each in checkpoints[number : number + left_out])
                table.add_row(f"… {left_out} more: " + ", ".join(f"{count} {state}" for state, count in states.items()))
            continue
        count = each["not_finite"]
        table.add_row(
            Text(os.path.relpath(each["path"], base) if base else each["path"]),
            "-" if each["step"] is None else str(each["step"]),
            str(each["files"]),
            size_in_words(each["bytes"]),
            str(each["tensors"]),
            "not checked" if count is None else f"{count:,}",
            Text(each["state"], style=STYLES[each["state"]]),
        )
    return table


def _findings(findings: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """The findings in their order, worst first; what is left out is counted before anything milder is shown."""
    kinds = Counter((finding["severity"], finding["code"]) for finding in findings)
    shown: Counter[tuple[str, str]] = Counter()
    for severity, alike in groupby(findings, key=lambda finding: str(finding["severity"])):
        for finding in alike:
            kind = (severity, finding["code"])
            if shown[kind] < MOST[severity]:
                shown[kind] += 1
                yield from _finding(finding)
        for (of, code), count in kinds.items():
            more = count - MOST[severity] if of == severity else 0
            if more > 0:
                yield Text(f"\n{counted(more, f'more {severity}')} of {code}: --json lists all", style="dim")
    if findings:
        yield Text("")


def _finding(finding: Mapping[str, Any]) -> Iterator[Text]:
    # Tensor names may hold brackets, so no markup.
    yield Text(f"\n{finding['severity']} {finding['code']} {finding['cause']}", style=COLOURS[finding["severity"]])
    yield Text(f"  {finding['title']}  ({finding['where']})")
    for line in finding["evidence"]:
        yield Text(f"    {line}", style="dim")
    yield Text(f"  fix: {finding['fix']}")


def _common(paths: Sequence[str]) -> str:
    """Common directory of several checkpoints; empty for one, or if there is none."""
    with suppress(ValueError):
        return os.path.commonpath([os.path.dirname(path) for path in paths]) if len(paths) > 1 else ""  # noqa: PTH120
    return ""


def size_in_words(size: int) -> str:
    """Size with a unit."""
    if size < 1000:
        return f"{size} B"
    power = min(int(math.log(size, 1000)), 5)
    return f"{size / 1000**power:.1f} {'kMGTP'[power - 1]}B"


def _called(path: str, step: int | None) -> str:
    return path if step is None else f"{path} (step {step})"
