"""What a program printed, its run directory and its script say by themselves; read, not seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stayfinite.diagnosis.diagnose import diagnose
from stayfinite.doctor.session import Seen
from stayfinite.doctor.told import READ
from stayfinite.errors import StayfiniteError

LEAST_SURE = 0.5
"""Below this confidence what a text says is not told."""


def diagnosis_of(place: Path, script: Path | None, output: Path) -> dict[str, Any]:
    """The diagnosis of a run directory or a log, as plain data.

    Arguments:
        place: the run directory or the log.
        script: the program's file, read as well; None for a module.
        output: where the program's output was kept for now. Nobody finds it later, so it is named in words.

    Raises:
        StayfiniteError: there was nothing to read.
    """
    written = json.dumps(diagnose(place, *([] if script is None else [script])).to_json())
    read: dict[str, Any] = json.loads(written.replace(json.dumps(str(output))[1:-1], "what it printed"))
    return read


def findings_in_texts(seen: Seen, script: Path | None, output: Path) -> list[dict[str, Any]]:
    """What the printed lines and the script say that was not seen already."""
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
    """Of a traceback, where it stands and its last line."""
    before, traced, after = evidence.partition("Traceback (most recent call last)")
    lines = [line.strip() for line in after.splitlines() if line.strip()]
    return f"{before}{lines[-1]}" if traced and lines else evidence
