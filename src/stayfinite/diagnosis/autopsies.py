"""What autopsies in a run directory have proved: stronger than anything that a log can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.errors import UsageError
from stayfinite.rules.registry import rule_of

AUTOPSY = "autopsy.json"
MOST = 16
LARGEST = 4 << 20
"""Bytes of an autopsy.json; what is larger is none."""


def proved_causes(directory: Path) -> list[Finding]:
    """A finding for each cause that the incidents of a run directory were explained by, the surest of each."""
    found: dict[str, Finding] = {}
    for path in sorted(directory.glob(f"incidents/*/{AUTOPSY}"))[:MOST]:
        finding = _finding(path)
        if finding is not None and finding.confidence > getattr(found.get(finding.cause), "confidence", 0.0):
            found[finding.cause] = finding
    return list(found.values())


def _finding(path: Path) -> Finding | None:
    try:
        if path.stat().st_size > LARGEST:
            return None
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rule = rule_of(str(told["cause"]))
        return Finding(
            code=rule.code,
            cause=rule.slug,
            severity=rule.severity,
            confidence=min(0.99, float(told["confidence"])),
            where=str(path),
            title=rule.title,
            evidence=(f"{path}: {told['verdict']}",),
            fix=str(told["fix"]["text"]) or rule.fix,
        )
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        return None  # half a file, or one of somebody else's: the log is still there
