"""Outcome of a watched program: findings, how it ended, and the verdict."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.diagnosis.diagnose import diagnose
from stayfinite.doctor.judges.course import doubt, ends
from stayfinite.doctor.ranks import started, with_other_ranks
from stayfinite.doctor.record import Program
from stayfinite.doctor.session import Seen, plain
from stayfinite.doctor.told import READ
from stayfinite.errors import StayfiniteError

LEAST_SURE = 0.5
"""Below this confidence a finding from text is dropped."""


def diagnosis_of(place: Path, script: Path | None, output: Path) -> dict[str, Any]:
    """Diagnosis of a run directory or log, as plain data.

    Arguments:
        place: the run directory or log.
        script: the program's file, also read; None for a module.
        output: temporary file with the program's output; the result does not name it.

    Raises:
        StayfiniteError: nothing to read.
    """
    written = json.dumps(diagnose(place, *([] if script is None else [script])).to_json())
    named = re.escape(json.dumps(str(output))[1:-1])
    written = re.sub(rf"{named}:(\d+)", r"its output, line \1", written)
    read: dict[str, Any] = json.loads(re.sub(named, "its output", written))
    return read


def findings_in_texts(seen: Seen, script: Path | None, output: Path) -> list[dict[str, Any]]:
    """Findings from the output and script that were not seen already."""
    try:
        found = diagnosis_of(output, script, output)["findings"]
    except StayfiniteError:
        return []
    known = {each.finding.cause for each in seen.findings}
    return [
        each | {"known_by": READ, "place": ["", 0], "evidence": [_shortened(line) for line in each["evidence"]]}
        for each in found
        if each["cause"] not in known and each["confidence"] >= LEAST_SURE and each["severity"] != "info"
    ]


def _shortened(evidence: str) -> str:
    """Reduce a traceback to its place and last line."""
    before, traced, after = evidence.partition("Traceback (most recent call last)")
    lines = [line.strip() for line in after.splitlines() if line.strip()]
    return f"{before}{lines[-1]}" if traced and lines else evidence


NOT_TRAINED = "the program ended without training: no backward pass was seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended."""

    code: int
    """Exit code."""
    after_minutes: float | None = None
    """The time limit that stopped it, or None."""
    strict: bool = False
    """Whether it stops at its first bad step."""


def outcome(seen: Seen, ended: Ended, script: Path | None, output: Path) -> dict[str, Any]:
    """Outcome of the program's own loop, as plain data.

    Arguments:
        script: the program's file; None for a module.
        output: the program's output. Both files are read if it failed or did not train.
    """
    said, program = plain(seen), seen.program
    if started() > 1:
        said["findings"] = with_other_ranks(said["findings"], hurry=ended.code != 0)
    if ended.code or not program.trains or program.steps < 2:
        said["findings"] += findings_in_texts(seen, script, output)
    sick = any(each["severity"] != "info" for each in said["findings"])
    doubtful = "" if sick else doubt(program)
    if words := _in_words(program, ended) or doubtful:
        said["ended"] = words
    healthy = program.steps >= 2 and ended.code == 0 and not doubtful
    said["verdict"] = "sick" if sick else "healthy" if healthy else "unknown"
    losses = program.main_loss()
    said["losses"] = list(ends(losses)) if len(losses.finite) else []
    return said


def _in_words(program: Program, ended: Ended) -> str:
    """How a program ended; empty if it trained to its end."""
    if ended.after_minutes is not None:
        stopped = f"stopped after {ended.after_minutes:g} minutes"
        return stopped if program.trains else f"{stopped}; no backward pass was seen"
    if ended.strict and program.bad is not None:
        return f"stopped at its first bad step, {program.bad.step}"
    if not program.trains:
        return NOT_TRAINED if ended.code == 0 else f"crashed before the first step (exit code {ended.code})"
    return f"the program ended with exit code {ended.code} at step {program.steps}" if ended.code else ""
