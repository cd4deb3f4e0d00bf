"""events.jsonl of a guarded run: it repeats the refused steps of steps.jsonl, so it is no log of its own.

Read as a log it would look like a run in which every single step failed. What it adds is taken from it: the findings
that the guard has recorded, and the words of errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries
from stayfinite.diagnosis.autopsies import record_in, surest
from stayfinite.diagnosis.course import STARTS
from stayfinite.errors import UsageError
from stayfinite.readers.logs import LogReader
from stayfinite.readers.runs.directory import RUN, STEPS
from stayfinite.readers.runs.events import error_of
from stayfinite.rules.registry import rule_of

_NAME = lazy_regex(r"events(?:-rank\d+)?\.jsonl")
LARGEST = 64 << 20
"""Bytes that are looked at."""


def own_events(logs: Sequence[Path]) -> list[Path]:
    """Those of the logs that are a guard's events, beside the steps that they are about or what was launched."""
    folders = {path.parent for path in logs if path.name == STEPS}
    return [
        path
        for path in logs
        if _NAME.fullmatch(path.name)
        and (path.parent in folders or (path.parent / RUN).is_file())  # a run may fail before its first step
        and _is_ours(path)
    ]


def read_own_events(path: Path) -> tuple[list[Finding], list[RunSeries]]:
    """The findings in a file of events, the surest of each cause, and its errors as messages."""
    found: list[Finding] = []
    errors: list[str] = []
    ended: tuple[int, dict[str, Any]] | None = None
    with path.open("rb") as file:
        for line in file.read(LARGEST).splitlines():
            record = record_in(line)
            words = _words(record)
            # A line for a line, so that places are right.
            errors.append(" ".join(words.split()))
            ended = (len(errors), record) if record.get("event") == "failed" else ended
            ended = None if record.get("event") in STARTS else ended
            finding = _finding(record, f"{path}:{len(errors)}") if record.get("event") == "finding" else None
            found += [] if finding is None else [finding]
    if ended is not None:  # and was not taken up again: the error with its kind is how the run crashed
        errors[ended[0] - 1] = error_of(ended[1]) or errors[ended[0] - 1]
    if not any(errors):
        return surest(found), []
    reader = LogReader(str(path))
    reader.feed("\n".join(errors) + "\n")
    reader.close()
    return surest(found), list(reader.series)


def _words(record: dict[str, Any]) -> str:
    """Of an error. Where only a checkpoint, an autopsy or a page failed, training went on: that is named first."""
    error, event, reason = (record.get(name) for name in ("error", "event", "reason"))
    if isinstance(error, str) and error:
        return error
    return f"{event}: {reason}" if str(event).endswith("-failed") and isinstance(reason, str) else ""


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            record = record_in(file.readline(1 << 20))
    except OSError:
        return False
    return "version" in record and "event" in record and "time" in record


def _finding(record: dict[str, Any], where: str) -> Finding | None:
    try:
        rule = rule_of(str(record["cause"]))
        confidence = float(record["confidence"])
        sure = min(0.99, max(0.0, confidence)) if math.isfinite(confidence) else 0.0
        evidence = [f"{where}: {line}" for line in record["evidence"]]
        return rule.finding(sure, where, evidence, title=str(record["title"]), fix=str(record["fix"]))
    except (KeyError, TypeError, ValueError, UsageError):
        return None  # of another version
