"""Diagnose a program's output, run directory and script as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stayfinite.diagnosis.diagnose import diagnose
from stayfinite.doctor.session import Seen
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
    read: dict[str, Any] = json.loads(written.replace(json.dumps(str(output))[1:-1], "what it printed"))
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
