"""Turn checkpoint facts into a scan result. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stayfinite.core.finding import Finding
from stayfinite.readers.checkpoints.facts import CheckpointFacts
from stayfinite.readers.checkpoints.lineage import judge_lineage
from stayfinite.readers.checkpoints.result import Scanned, ScanResult
from stayfinite.readers.checkpoints.structure import read_structure
from stayfinite.readers.checkpoints.verdict import judge

_RANKS = {"error": 0, "warning": 1, "info": 2}


def found_at(paths: Iterable[str | os.PathLike[str]]) -> list[Scanned]:
    """Read the structure of all checkpoints at the paths, without values. Raises OSError for a missing path."""
    return [Scanned(facts=facts) for facts in read_structure(map(Path, paths))]


def conclude(found: list[Scanned], *, quick: bool) -> ScanResult:
    """Judge each checkpoint alone and against the others. ``quick``: values were not read."""
    for each in found:
        each.findings = judge(each)
    for each, finding in judge_lineage(found):
        each.findings.append(finding)
    result = ScanResult(checkpoints=tuple(found), findings=(), quick=quick)
    return replace(result, findings=tuple(_ranked(result)))


def _ranked(result: ScanResult) -> list[Finding]:
    """Sort by severity, then confidence, and append the newest good checkpoint to the fix for poisoned ones."""
    good = result.newest_good
    findings = []
    for each in result.checkpoints:
        for finding in each.findings:
            if finding.code in ("SF702", "SF703") and finding.severity == "error" and good is not None:
                finding = replace(finding, fix=f"{finding.fix}; the newest good one is {_called(good.facts)}")
            findings.append(finding)
    return sorted(findings, key=lambda finding: (_RANKS[finding.severity], -finding.confidence))


def _called(facts: CheckpointFacts) -> str:
    return str(facts.path) if facts.step is None else f"{facts.path} (step {facts.step})"
