"""What autopsies in a run directory have proved: stronger than anything that a log can show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.errors import UsageError
from stayfinite.rules.registry import rule_of

AUTOPSY = "autopsy.json"
MOST = 16
LARGEST = 4 << 20
"""Bytes of an autopsy.json; what is larger is none."""


def proved_causes(directory: Path, pattern: str = f"incidents/*/{AUTOPSY}") -> list[Finding]:
    """A finding for each cause that the incidents of a run directory were explained by, the surest of each."""
    paths = sorted(directory.glob(pattern))[:MOST]
    return surest(finding for finding in map(_finding, paths) if finding is not None)


def proved_cause(told: Mapping[str, Any], where: str) -> Finding | None:
    """What an autopsy has proved, told by its file or by its event; None where it is half of one or somebody else's."""
    try:
        rule = rule_of(str(told["cause"]))
        confidence = float(told["confidence"])
        if not 0.0 < confidence <= 1.0:  # nor NaN
            return None
        told_by = [f"{where}: {told.get('why') or told['verdict']}"]
        return rule.finding(min(0.99, confidence), where, told_by, fix=str(told["fix"]["text"]))
    except (ValueError, KeyError, TypeError, OverflowError, UsageError):
        return None


def record_in(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a file or on a line of one; empty where it is half of one or something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def surest(findings: Iterable[Finding]) -> list[Finding]:
    """The surest finding of each cause."""
    found: dict[str, Finding] = {}
    for finding in findings:
        if finding.confidence > getattr(found.get(finding.cause), "confidence", 0.0):
            found[finding.cause] = finding
    return list(found.values())


def _finding(path: Path) -> Finding | None:
    try:
        if path.stat().st_size > LARGEST:
            return None
        told = record_in(path.read_bytes())
    except OSError:
        return None  # the log is still there
    return proved_cause(told, str(path))
